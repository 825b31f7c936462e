package ringtest

import (
	"fmt"
	"math"
	"testing"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/internal/harness"
)

// Exhaust performs every history of up to Depth operations on a ring of Size bytes, shortest
// first: allocations of Payloads bytes; frees of the oldest chunk, of the second, of the newest,
// of all; and a clear, if the ring has one. The ids of the ring begin 2 before their end. What
// fails is one of the shortest histories that do. Exhaust logs the number of histories, which
// is multiplied by about 6 with each operation.
func Exhaust(t testing.TB, n New, o Options) {
	t.Helper()
	if o.Size == 0 {
		o.Size = 40
	}
	if o.Depth == 0 {
		o.Depth = 6
	}
	if o.Payloads == nil {
		half := o.Size/2 - headerSize
		o.Payloads = []int{1, max(half, 1), max(half+1, 1), max(o.Size-headerSize, 1)} // two fit, two just don't, all
	}
	p := mustPlan(t, n, o)
	if p.new(o.Size, 0) == nil {
		t.Fatalf("ringtest: New returned nil for %d bytes", o.Size)
	}
	choices := p.alphabet()
	histories := 0
	for depth := 1; depth <= o.Depth; depth++ {
		count, failure := p.exhaust(choices, depth)
		histories += count
		if failure != nil {
			failure.Found = len(failure.Ops)
			harness.Report(t, "ringtest", fmt.Sprintf("%d histories", histories), failure, nil)
		}
	}
	t.Logf("ringtest: all %d histories of up to %d operations out of %d, on %d bytes", histories, o.Depth, len(choices), o.Size)
}

// choice is one operation of a history, which depends on what is live when it is performed. done
// is false if there is nothing to do.
type choice func(t *tester) (done bool, failure *fuzz.Failure)

func (p *plan) alphabet() []choice {
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
func (p *plan) exhaust(choices []choice, length int) (histories int, failure *fuzz.Failure) {
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
func (p *plan) history(choices []choice, digits []int) (performed int, failure *fuzz.Failure) {
	t := &tester{plan: p}
	defer harness.Recover(&failure, t.lines)
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
