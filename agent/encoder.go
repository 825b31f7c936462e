package agent

import (
	"time"

	"github.com/ringcache/ringcache/encoder"
)

func (a *Agent) encoderOps() map[string]operation {
	manager := func(f func(*params, *encoder.Manager) (reply, error)) func(*params) (reply, error) {
		return on("encoder", a.encoders, f)
	}
	return map[string]operation{
		"encoder.new":          {"encoder capacity generation treat_as rule costs", a.encoderNew},
		"encoder.check":        {"encoder request inputs input", manager(encoderCheck)},
		"encoder.can_allocate": {"encoder request inputs input budget scheduled", manager(encoderCanAllocate)},
		"encoder.allocate": {"encoder request inputs input", manager(func(p *params, m *encoder.Manager) (reply, error) {
			return nil, m.Allocate(encoderRequest(p), p.int("input"))
		})},
		"encoder.inputs": {"encoder request inputs", manager(func(p *params, m *encoder.Manager) (reply, error) {
			return reply{"cached": list(m.Inputs(encoderRequest(p)))}, nil
		})},
		"encoder.free_input": {"encoder request inputs input", manager(func(p *params, m *encoder.Manager) (reply, error) {
			return nil, m.FreeInput(encoderRequest(p), p.int("input"))
		})},
		"encoder.free": {"encoder request inputs", manager(func(p *params, m *encoder.Manager) (reply, error) {
			return nil, m.Free(encoderRequest(p))
		})},
		"encoder.freed": {"encoder", manager(func(_ *params, m *encoder.Manager) (reply, error) {
			return reply{"freed": list(m.TakeFreed())}, nil
		})},
		"encoder.embeds": {"encoder identifier", manager(encoderEmbeds)},
		"encoder.pin": {"encoder identifier", manager(func(p *params, m *encoder.Manager) (reply, error) {
			return reply{"pinned": m.Pin(p.str("identifier"))}, nil
		})},
		"encoder.unpin": {"encoder identifier", manager(func(p *params, m *encoder.Manager) (reply, error) {
			return reply{"unpinned": m.Unpin(p.str("identifier"))}, nil
		})},
		"encoder.reset": {"encoder", manager(encoderReset)},
		"encoder.state": {"encoder", manager(encoderState)},
		"encoder.close": {"encoder", forget("encoder", a.encoders)},
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
		}
		r.Inputs = append(r.Inputs, encoder.Input{Identifier: *in.Identifier, Embeds: *in.Embeds})
	}
	return r
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
	name := unused(p, "encoder", a.encoders)
	m, err := encoder.NewManager(encoderOptions(p))
	if err != nil {
		return nil, err
	}
	a.encoders[name] = m
	return nil, nil
}

func encoderCheck(p *params, m *encoder.Manager) (reply, error) {
	hit, err := m.Check(encoderRequest(p), p.int("input"))
	return reply{"hit": hit}, err
}

func encoderCanAllocate(p *params, m *encoder.Manager) (reply, error) {
	fits, err := m.CanAllocate(encoderRequest(p), p.int("input"), p.int("budget"), optional(p, "scheduled", 0))
	return reply{"fits": fits}, err
}

func encoderEmbeds(p *params, m *encoder.Manager) (reply, error) {
	n, ok := m.Embeds(p.str("identifier"))
	if !ok {
		return reply{"found": false}, nil
	}
	return reply{"found": true, "embeds": n}, nil
}

func encoderReset(_ *params, m *encoder.Manager) (reply, error) { m.Reset(); return nil, nil }

func encoderState(_ *params, m *encoder.Manager) (reply, error) {
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
	}, nil
}

// list is never nil, which JSON would show as null.
func list[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}
