package lrutest

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/internal/draw"
	"github.com/ringcache/ringcache/fuzz/model"
)

// pairSubject is a pair and all that is needed to test it.
type pairSubject struct {
	create     MakePair
	options    Options
	release    model.Release
	invariants []fuzz.Invariant[PairStep]
}

func newPairSubject(create MakePair, o Options) (*pairSubject, error) {
	r, errRelease := o.release()
	invariants, err := active(PairInvariants(), o.Without)
	return &pairSubject{create, o, r, invariants}, errors.Join(errRelease, err)
}

// generator makes requests of few keys, most of which arrive in order. Half of the sequences keep
// the order throughout.
func (s *pairSubject) generator() fuzz.Generator {
	return func(c *fuzz.Choices, length int) (ops []fuzz.Op) {
		capacity := s.options.Capacity
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
func (s *pairSubject) test(ops []fuzz.Op) (f *fuzz.Failure) {
	done := 0
	defer recovered(&f, ops, &done)
	l := &link{create: s.create, release: s.release}
	l.check = func(step PairStep) *fuzz.Failure { return failed(s.invariants, step, ops[:done+1]) }
	for i, op := range ops {
		done = i
		if f := l.perform(op); f != nil {
			return f
		}
	}
	return nil
}

// CheckPair makes random requests through pairs that create makes, over a link that delivers,
// holds back, loses and refuses messages, and fails with the smallest sequence that breaks an
// invariant.
func CheckPair(t testing.TB, create MakePair, o Options) {
	t.Helper()
	s, err := newPairSubject(create, o)
	if err != nil {
		t.Fatal(err)
	}
	find(t, o, s.generator(), s.test)
}

// FuzzPair is CheckPair with the bytes of Go's fuzzer.
func FuzzPair(f *testing.F, create MakePair, o Options) {
	f.Helper()
	s, err := newPairSubject(create, o)
	if err != nil {
		f.Fatal(err)
	}
	fuzzBytes(f, s.generator(), s.test)
}

// MachinePair is CheckPair with the choices of rapid, for rapid.Check.
func MachinePair(create MakePair, o Options) func(*rapid.T) {
	return func(t *rapid.T) {
		s, err := newPairSubject(create, o)
		if err != nil {
			t.Fatal(err)
		}
		ops := s.generator()(draw.Choices(t), rapid.IntRange(1, 60).Draw(t, "length"))
		if f := s.test(ops); f != nil {
			f.Found = len(ops)
			t.Fatal(f)
		}
	}
}
