package lrutest

import (
	"slices"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/generate"
	"github.com/ringcache/ringcache/fuzz/internal/harness"
	"github.com/ringcache/ringcache/fuzz/internal/harness/rules"
	"github.com/ringcache/ringcache/fuzz/model"
)

// plan is what a test of a cache does: Options with everything filled in.
type plan struct {
	Options
	new        New
	release    model.Release
	invariants []fuzz.Invariant[Step]
}

func newPlan(n New, o Options) (*plan, error) {
	r, err := o.release()
	if err != nil {
		return nil, err
	}
	invariants, err := active(o, Invariants())
	return &plan{o, n, r, invariants}, err
}

func newSubject(n New, o Options) harness.Subject {
	s := o.subject()
	p, err := newPlan(n, o)
	if err != nil {
		s.Err = err
		return s
	}
	missing := without(n(1))
	s.Test = p.test
	s.Generate = generate.LRU(generate.LRUOptions{Capacity: o.Capacity, GrowAnew: []bool{o.GrowAnew}, Without: missing})
	for _, name := range operations {
		if !slices.Contains(missing, name) {
			s.Operations = append(s.Operations, name)
		}
	}
	return s
}

// operations are those of caches that have everything.
var operations = []string{
	"lru.new", "lru.put", "lru.get", "lru.pop", "lru.touch", "lru.pin", "lru.popitem", "lru.clear", "lru.stat",
	"lru.close",
}

// test performs a sequence, and returns what goes wrong first.
func (p *plan) test(ops []fuzz.Op) *fuzz.Failure { return p.testFrom(0, ops) }

// testFrom is test, and checks the operations from an index on.
func (p *plan) testFrom(first int, ops []fuzz.Op) (f *fuzz.Failure) {
	done := 0
	performed := func() []fuzz.Op { return ops[:min(done+1, len(ops))] }
	defer rules.Recover(&f, performed)
	m := &machine{new: p.new}
	var vllm *model.LRU
	for i, op := range ops {
		done = i
		switch {
		case op.Name == "lru.new":
			vllm = model.NewLRU(p.release, model.CacheOptions{})
		case op.Name == "lru.close", vllm == nil, number(op.Args["size"]) < 0:
			continue // a new cache follows; minimizing left the first one out; no value has such a size
		}
		step, err := m.perform(i, op, i >= first)
		if err != nil {
			return &fuzz.Failure{Invariant: "broken", Err: err, Ops: performed()}
		}
		want, err := vllm.Do([]fuzz.Op{op})
		if err == nil && i >= first {
			var state []fuzz.Reply
			state, err = vllm.Do([]fuzz.Op{{Name: "lru.state", Args: map[string]any{"lru": "l"}}})
			step.Want, step.WantAfter = want[0], state[0].Fields
		}
		if err != nil {
			return &fuzz.Failure{Invariant: "broken", Err: err, Ops: performed()}
		}
		if i < first {
			continue
		}
		if f := rules.Broken(p.invariants, step, performed); f != nil {
			return f
		}
	}
	return nil
}
