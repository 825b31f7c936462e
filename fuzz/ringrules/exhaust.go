package ringrules

import (
	"math"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/internal/harness/rules"
)

// Exhaust performs every history of up to Depth operations on a ring of Size bytes, shortest
// first, and returns how many there were, out of how many choices of an operation.
func (p *Plan) Exhaust() (histories, choices int, failure *fuzz.Failure) {
	alphabet := p.alphabet()
	for depth := 1; depth <= p.Depth; depth++ {
		count, failure := p.exhaust(alphabet, depth)
		histories += count
		if failure != nil {
			failure.Found = len(failure.Ops)
			return histories, len(alphabet), failure
		}
	}
	return histories, len(alphabet), nil
}

// choice is one operation of a history, which depends on what is live when it is performed. done
// is false if there is nothing to do.
type choice func(t *tester) (done bool, failure *fuzz.Failure)

func (p *Plan) alphabet() []choice {
	var out []choice
	for _, size := range p.Payloads {
		out = append(out, func(t *tester) (bool, *fuzz.Failure) { return true, t.alloc(size, 0) })
	}
	// Of choices that come to the same, there is one.
	out = append(out,
		freeNth(1, func(int) int { return 0 }),
		freeNth(2, func(live int) int { return live - 1 }),
		freeNth(3, func(int) int { return 1 }),
		func(t *tester) (bool, *fuzz.Failure) {
			if len(t.live) < 2 {
				return false, nil
			}
			return true, t.free(t.liveIDs())
		},
	)
	if _, ok := p.new(p.Size, 0).(Clearer); ok {
		out = append(out, func(t *tester) (bool, *fuzz.Failure) { return true, t.clear() })
	}
	return out
}

// freeNth frees one of at least so many live chunks.
func freeNth(least int, pick func(live int) int) choice {
	return func(t *tester) (bool, *fuzz.Failure) {
		if len(t.live) < least {
			return false, nil
		}
		return true, t.free([]uint32{t.live[pick(len(t.live))].ID})
	}
}

// exhaust performs all histories of a length.
func (p *Plan) exhaust(choices []choice, length int) (histories int, failure *fuzz.Failure) {
	digits := make([]int, length)
	for {
		done, f := p.history(choices, digits)
		if f != nil {
			return histories + 1, f
		}
		if done == length {
			histories++
		}
		i := min(done, length-1) // the others begin with what can't be done, too
		clear(digits[i+1:])
		for ; i >= 0; i-- {
			if digits[i]++; digits[i] < len(choices) {
				break
			}
			digits[i] = 0
		}
		if i < 0 {
			return histories, nil
		}
	}
}

// history performs choices up to the first that can't be, and returns their number.
func (p *Plan) history(choices []choice, digits []int) (performed int, failure *fuzz.Failure) {
	t := &tester{Plan: p}
	defer rules.Recover(&failure, t.lines)
	if failure = t.create(p.Size, math.MaxInt32-1); failure != nil {
		return 0, failure
	}
	for i, d := range digits {
		done, f := choices[d](t)
		if f != nil || !done {
			return i, f
		}
	}
	return len(digits), t.drain()
}
