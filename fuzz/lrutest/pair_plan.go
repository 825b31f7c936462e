package lrutest

import (
	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/internal/harness"
	"github.com/ringcache/ringcache/fuzz/internal/harness/rules"
	"github.com/ringcache/ringcache/fuzz/model"
)

// pairPlan is what a test of a pair does: Options with everything filled in.
type pairPlan struct {
	Options
	new        NewPair
	release    model.Release
	invariants []fuzz.Invariant[PairStep]
}

func newPairSubject(n NewPair, o Options) harness.Subject {
	s := o.subject()
	r, err := o.release()
	if err != nil {
		s.Err = err
		return s
	}
	invariants, err := active(o, PairInvariants())
	p := &pairPlan{o, n, r, invariants}
	s.Err, s.Generate, s.Test = err, p.generator(), p.test
	s.Operations = []string{"link.new", "link.send", "link.deliver", "link.clear", "link.restart"}
	return s
}

// generator makes requests of few keys, most of which arrive in order. Half of the sequences keep
// the order throughout.
func (p *pairPlan) generator() fuzz.Generator {
	return func(c *fuzz.Choices, length int) (ops []fuzz.Op) {
		capacity := p.Capacity
		if capacity == 0 {
			capacity = fuzz.Pick(c, 12.0, 8, 20.5, 28, 40, 3)
		}
		add := func(name string, args map[string]any) { ops = append(ops, fuzz.Op{Name: name, Args: args}) }
		add("link.new", map[string]any{"capacity": capacity})
		calm := c.Percent(50)
		for len(ops) < length && c.More() {
			switch n := c.Int(100); {
			case n < 80:
				add("link.send", request(c, calm))
			case n < 90:
				nth := 0
				if !calm && c.Percent(30) {
					nth = c.Int(3)
				}
				add("link.deliver", map[string]any{"nth": nth})
			case n < 95:
				add("link.clear", map[string]any{"fate": fuzz.Pick(c, "now", "now", "wait", "refuse")})
			case !calm:
				add("link.restart", map[string]any{})
			}
		}
		return ops
	}
}

// request returns the fields of link.send.
func request(c *fuzz.Choices, calm bool) map[string]any {
	keys, lack := []any{}, []any{}
	for i := range 1 + c.Int(4) {
		key := string(rune('a' + c.Int(8)))
		if i > 0 && c.Percent(10) {
			key = keys[i-1].(string)
		}
		if keys = append(keys, key); c.Percent(20) {
			lack = append(lack, i)
		}
	}
	fate := "now"
	switch n := c.Int(20); {
	case n == 0:
		fate = "refuse"
	case n < 4:
		fate = "wait"
	case n == 4 && !calm:
		fate = "lose"
	case n == 5 && !calm:
		fate = "overtake"
	}
	return map[string]any{"keys": keys, "lack": lack, "fate": fate}
}

// test performs a sequence, and returns what goes wrong first.
func (p *pairPlan) test(ops []fuzz.Op) (f *fuzz.Failure) {
	done := 0
	performed := func() []fuzz.Op { return ops[:min(done+1, len(ops))] }
	defer rules.Recover(&f, performed)
	l := &link{new: p.new, release: p.release}
	l.check = func(step PairStep) *fuzz.Failure { return rules.Broken(p.invariants, step, performed) }
	for i, op := range ops {
		done = i
		if f := l.perform(op); f != nil {
			return f
		}
	}
	return nil
}
