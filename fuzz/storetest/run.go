package storetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/internal/harness/rules"
)

const structureWhy = "The store's own check of its structure fails."

// testPromises performs a sequence and checks the invariants after each operation. done are the
// operations performed.
func (p *plan) testPromises(s *system, ops []fuzz.Op, done *[]fuzz.Op) *fuzz.Failure {
	t := &trial{plan: p, system: s}
	replies := map[int]fuzz.Reply{}
	for _, op := range ops {
		op = op.Resolve(replies)
		*done = append(*done, op)
		if op.Name == "store.close" && op.Args["store"] == "w" {
			if f := t.end(); f != nil {
				return f
			}
		}
		reply, f := t.step(op)
		if f != nil {
			return f
		}
		if op.ID != 0 {
			replies[op.ID] = reply
		}
	}
	return t.end()
}

// trial is a sequence under way.
type trial struct {
	*plan
	system *system
	world  *world
	state  State
}

func broken(err error) *fuzz.Failure { return &fuzz.Failure{Invariant: "broken", Err: err} }

func (t *trial) step(op fuzz.Op) (fuzz.Reply, *fuzz.Failure) {
	before := t.state
	reply := t.system.do(op)
	if reply.Kind == skipped {
		return reply, nil
	}
	if op.Name == "store.create" && reply.Kind == "" {
		t.world = newWorld(t.system.config.Readers, t.Rereads)
		before = State{}
	}
	step := Step{Op: op, Reply: reply, Before: before, w: t.world, open: t.system.store != nil}
	if step.open {
		var err error
		if t.state, err = t.system.store.State(); err != nil {
			return reply, broken(err)
		}
		step.After = t.state
		if step.largest, err = t.fits(t.system.config); err != nil {
			return reply, broken(err)
		}
	} else {
		t.state = State{}
	}
	if t.world == nil {
		return reply, nil
	}
	if f := rules.Broken(t.invariants, step, unknown); f != nil {
		return reply, f
	}
	if reply.Kind == "" {
		t.world.apply(op, reply)
	}
	t.world.keep(&t.state)
	if c, ok := t.system.store.(Checker); ok && step.open {
		if err := c.CheckStructure(); err != nil {
			return reply, &fuzz.Failure{Invariant: "structure", Why: structureWhy, Err: err}
		}
	}
	return reply, nil
}

// end ends everything that is open in a store, and checks that nothing stays.
func (t *trial) end() *fuzz.Failure {
	if t.system.store == nil || t.world == nil || slices.Contains(t.Without, nothingStays) {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(t.world.requests)) {
		name := "store.rollback"
		if t.world.requests[id].committed {
			name = "store.finish"
		}
		if _, f := t.step(fuzz.Op{Name: name, Args: map[string]any{"store": "w", "request": id}}); f != nil {
			return f
		}
	}
	if f, ok := t.system.store.(Fencer); ok {
		if err := f.Fence(); err != nil {
			return broken(err)
		}
		t.world.apply(fuzz.Op{Name: "store.fence"}, fuzz.Reply{})
	}
	for o := range t.world.all() {
		if !t.world.free(o) {
			return nil // a reader may still hold or get the object
		}
	}
	return rules.Broken(t.invariants, Step{w: t.world, end: t.empty}, unknown)
}

// unknown are the operations of a failure before test fills them in.
func unknown() []fuzz.Op { return nil }

// empty puts the largest object into a store in which everything has ended.
func (t *trial) empty() error {
	if touched, ok := t.system.store.(Toucher); ok {
		if err := touched.ReleaseTouches(); err != nil {
			return err
		}
	}
	n, err := t.fits(t.system.config)
	if err != nil || n < 0 {
		return err
	}
	if _, err := t.system.store.Put("the largest", make([]byte, n)); err != nil {
		return fmt.Errorf("everything has ended, and %d bytes, which fit into an empty store, don't: %w", n, err)
	}
	return nil
}

// fits returns how long the largest value is that fits into an empty store, -1 if none does.
func (p *plan) fits(c Config) (int, error) {
	key := [3]int{c.Size, c.MaxObject, c.Readers}
	if n, ok := p.largest[key]; ok {
		return n, nil
	}
	low, high := -1, c.Size+1
	for high-low > 1 {
		n := (low + high) / 2
		s, err := p.new(c)
		if err != nil {
			return 0, err
		}
		_, err = s.Put("the largest", make([]byte, n))
		if err := s.Close(); err != nil {
			return 0, errors.Join(errors.New("a store that should be closed"), err)
		}
		if err == nil {
			low = n
		} else {
			high = n
		}
	}
	p.largest[key] = low
	return low, nil
}
