package fuzz

import (
	"fmt"
	"strings"
)

// Invariant is a property that must hold, with the reason for people who see it broken.
type Invariant[S any] struct {
	Name  string // "no-overlap"
	Why   string // one sentence
	Holds func(S) error
}

// Failure is a sequence that shows a defect.
type Failure struct {
	Invariant string // its name, or "difference", "panic", "broken"
	Why       string
	Err       error
	Ops       []Op // as performed: without Refs
	// Seed made the sequence, if Seeded is set. Found is the number of operations that the sequence
	// had before it was minimized.
	Seed   uint64
	Seeded bool
	Found  int
	// Repeat is the command that shows the failure again, "" if there is none.
	Repeat string
}

// Error is the whole report: invariant, operations, and how to repeat them.
func (f *Failure) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %v\n", f.Invariant, f.Err)
	if f.Why != "" {
		fmt.Fprintf(&b, "  why it matters: %s\n", f.Why)
	}
	if f.Seeded {
		fmt.Fprintf(&b, "  seed %d; ", f.Seed)
	} else {
		b.WriteString("  ")
	}
	fmt.Fprintf(&b, "%d operations, of which these are enough:\n", f.Found)
	for _, op := range f.Ops {
		fmt.Fprintf(&b, "    %s\n", op.Line())
	}
	if f.Repeat != "" {
		fmt.Fprintf(&b, "  again: %s\n", f.Repeat)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// Unwrap returns Err.
func (f *Failure) Unwrap() error { return f.Err }

// Search configures [Find].
type Search struct {
	Seed   uint64 // of the first sequence; the next one has Seed+1
	Ops    int    // at least so many operations in all, 10000 if 0
	Length int    // of a sequence, 200 if 0
}

// Find generates sequences until test fails for one, and returns that failure with its
// sequence minimized, or nil. done is the number of operations that were generated.
func Find(s Search, generate Generator, test func(ops []Op) *Failure) (failure *Failure, done int) {
	if s.Ops == 0 {
		s.Ops = 10000
	}
	if s.Length == 0 {
		s.Length = 200
	}
	for seed := s.Seed; done < s.Ops; seed++ {
		ops := generate(FromSeed(seed), s.Length)
		done += max(len(ops), 1)
		if f := test(ops); f != nil {
			f = Shrink(ops, f, test)
			f.Seed, f.Seeded = seed, true
			return f, done
		}
	}
	return nil, done
}

// Shrink minimizes a sequence for which test returned f, and returns the failure of the smallest
// one: one with the same invariant.
func Shrink(ops []Op, f *Failure, test func(ops []Op) *Failure) *Failure {
	best := f
	Minimize(ops, func(smaller []Op) bool {
		g := test(smaller)
		if g == nil || g.Invariant != f.Invariant {
			return false
		}
		best = g
		return true
	})
	best.Found = len(ops)
	return best
}
