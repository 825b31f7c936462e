package agent

import (
	"time"

	"github.com/ringcache/ringcache/encoder"
)

func (a *Agent) encoderOps() map[string]operation {
	return map[string]operation{
		"encoder.new":          a.encoderNew,
		"encoder.check":        a.onEncoder(withInput(encoderCheck)),
		"encoder.can_allocate": a.onEncoder(encoderCanAllocate),
		"encoder.allocate": a.onEncoder(withInput(func(m *encoder.Manager, r encoder.Request, i int) (reply, error) {
			return nil, m.Allocate(r, i)
		})),
		"encoder.inputs": a.onEncoder(withRequest(func(m *encoder.Manager, r encoder.Request) (reply, error) {
			return reply{"cached": list(m.Inputs(r))}, nil
		})),
		"encoder.free_input": a.onEncoder(withInput(func(m *encoder.Manager, r encoder.Request, i int) (reply, error) {
			return nil, m.FreeInput(r, i)
		})),
		"encoder.free": a.onEncoder(withRequest(func(m *encoder.Manager, r encoder.Request) (reply, error) {
			return nil, m.Free(r)
		})),
		"encoder.freed": a.onEncoder(func(_ *params, m *encoder.Manager) (reply, error) {
			return reply{"freed": list(m.TakeFreed())}, nil
		}),
		"encoder.embeds": a.onEncoder(encoderEmbeds),
		"encoder.pin": a.onEncoder(withIdentifier(func(m *encoder.Manager, identifier string) reply {
			return reply{"pinned": m.Pin(identifier)}
		})),
		"encoder.unpin": a.onEncoder(withIdentifier(func(m *encoder.Manager, identifier string) reply {
			return reply{"unpinned": m.Unpin(identifier)}
		})),
		"encoder.reset": a.onEncoder(func(_ *params, m *encoder.Manager) (reply, error) { m.Reset(); return nil, nil }),
		"encoder.state": a.onEncoder(func(_ *params, m *encoder.Manager) (reply, error) { return encoderState(m), nil }),
		"encoder.close": a.onEncoder(func(p *params, _ *encoder.Manager) (reply, error) {
			delete(a.encoders, p.str("encoder"))
			return nil, nil
		}),
	}
}

func (a *Agent) onEncoder(f func(*params, *encoder.Manager) (reply, error)) operation {
	return func(p *params) (reply, error) {
		name := p.str("encoder")
		m, ok := a.encoders[name]
		if p.err == nil && !ok {
			p.fail("no encoder %q", name)
		}
		if p.err != nil {
			return nil, p.err
		}
		return f(p, m)
	}
}

// encoderInput is an input of a request.
type encoderInput struct {
	Identifier *string `json:"identifier"`
	Embeds     *int    `json:"embeds"`
}

func encoderRequest(p *params) encoder.Request {
	r := encoder.Request{ID: p.str("request")}
	for i, in := range required[[]encoderInput](p, "inputs") {
		if in.Identifier == nil || in.Embeds == nil {
			p.fail("field \"inputs\": input %d needs identifier and embeds", i)
			break
		}
		r.Inputs = append(r.Inputs, encoder.Input{Identifier: *in.Identifier, Embeds: *in.Embeds})
	}
	return r
}

func withRequest(f func(*encoder.Manager, encoder.Request) (reply, error)) func(*params, *encoder.Manager) (reply, error) {
	return func(p *params, m *encoder.Manager) (reply, error) {
		r := encoderRequest(p)
		if p.err != nil {
			return nil, p.err
		}
		return f(m, r)
	}
}

func withInput(f func(*encoder.Manager, encoder.Request, int) (reply, error)) func(*params, *encoder.Manager) (reply, error) {
	return func(p *params, m *encoder.Manager) (reply, error) {
		r, i := encoderRequest(p), p.int("input")
		if p.err != nil {
			return nil, p.err
		}
		return f(m, r, i)
	}
}

func withIdentifier(f func(*encoder.Manager, string) reply) func(*params, *encoder.Manager) (reply, error) {
	return func(p *params, m *encoder.Manager) (reply, error) {
		identifier := p.str("identifier")
		if p.err != nil {
			return nil, p.err
		}
		return f(m, identifier), nil
	}
}

// encoderOptions are the fields that make a manager.
func encoderOptions(p *params) encoder.ManagerOptions {
	o := encoder.ManagerOptions{Capacity: p.int("capacity"), Generation: p.generation()}
	costs := optional(p, "costs", map[string]float64(nil))
	switch rule := optional(p, "rule", "release"); {
	case rule == "cost" && costs == nil:
		o.Rule = encoder.ByCost(nil)
	case rule == "cost":
		o.Rule = encoder.ByCost(func(in encoder.Input) time.Duration {
			return time.Duration(costs[in.Identifier] * float64(time.Second))
		})
	case rule != "release":
		p.fail("unknown rule %q: release or cost", rule)
	case costs != nil:
		p.fail("the rule \"release\" knows no costs")
	}
	return o
}

func (a *Agent) encoderNew(p *params) (reply, error) {
	name := p.str("encoder")
	o := encoderOptions(p)
	if p.err != nil {
		return nil, p.err
	}
	if _, ok := a.encoders[name]; ok {
		return nil, invalidf("encoder %q exists", name)
	}
	m, err := encoder.NewManager(o)
	if err != nil {
		return nil, err
	}
	a.encoders[name] = m
	return nil, nil
}

func encoderCheck(m *encoder.Manager, r encoder.Request, i int) (reply, error) {
	hit, err := m.Check(r, i)
	if err != nil {
		return nil, err
	}
	return reply{"hit": hit}, nil
}

func encoderCanAllocate(p *params, m *encoder.Manager) (reply, error) {
	r, i, budget, scheduled := encoderRequest(p), p.int("input"), p.int("budget"), optional(p, "scheduled", 0)
	if p.err != nil {
		return nil, p.err
	}
	fits, err := m.CanAllocate(r, i, budget, scheduled)
	if err != nil {
		return nil, err
	}
	return reply{"fits": fits}, nil
}

func encoderEmbeds(p *params, m *encoder.Manager) (reply, error) {
	identifier := p.str("identifier")
	if p.err != nil {
		return nil, p.err
	}
	n, ok := m.Embeds(identifier)
	if !ok {
		return reply{"found": false}, nil
	}
	return reply{"found": true, "embeds": n}, nil
}

func encoderState(m *encoder.Manager) reply {
	s := m.State()
	cached := map[string][]string{}
	for identifier, requests := range s.Needed {
		cached[identifier] = list(requests)
	}
	released := [][2]any{}
	for _, in := range s.Released {
		released = append(released, [2]any{in.Identifier, in.Embeds})
	}
	return reply{
		"capacity": s.Capacity, "free": s.Free, "freeable": s.Freeable, "cached": cached, "released": released,
		"pinned": list(s.Pinned), "freed": list(s.Freed),
	}
}

// list is never nil, which JSON would show as null.
func list[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}
