// Package rules is the part of the harness that is without package testing, for programs: which
// invariants are checked, what breaks one, and panics.
package rules

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/ringcache/ringcache/fuzz"
)

// Active returns the invariants but those that are left out by name. An unknown name is an error.
func Active[S any](all []fuzz.Invariant[S], without []string) (active []fuzz.Invariant[S], err error) {
	var names []string
	for _, i := range all {
		names = append(names, i.Name)
		if !slices.Contains(without, i.Name) {
			active = append(active, i)
		}
	}
	for _, name := range without {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("the option Without: there is no invariant %q, but %q", name, names)
		}
	}
	return active, nil
}

// Broken returns the failure of the first invariant that does not hold. ops are asked for then.
func Broken[S any](invariants []fuzz.Invariant[S], s S, ops func() []fuzz.Op) *fuzz.Failure {
	for _, i := range invariants {
		if err := i.Holds(s); err != nil {
			return &fuzz.Failure{Invariant: i.Name, Why: i.Why, Err: err, Ops: ops()}
		}
	}
	return nil
}

// Recover turns a panic of what is tested into a failure. It has to be deferred itself.
// A [*fuzz.Failure] as the value of the panic is the failure itself: what is tested can't be tested
// any more.
func Recover(failure **fuzz.Failure, ops func() []fuzz.Op) {
	x := recover()
	if x == nil {
		return
	}
	if f, ok := x.(*fuzz.Failure); ok {
		f.Ops = ops()
		*failure = f
		return
	}
	*failure = &fuzz.Failure{
		Invariant: "panic", Ops: ops(), Err: fmt.Errorf("%v, at %s", x, panicked()),
		Why: "arguments may be anything: an error is the answer to what can't be done",
	}
}

// panicked returns where the panic that is being recovered from began.
func panicked() string {
	frames := make([]uintptr, 64)
	trace := runtime.CallersFrames(frames[:runtime.Callers(2, frames)])
	for inPanic := false; ; {
		frame, more := trace.Next()
		ours := !strings.HasPrefix(frame.Function, "runtime.")
		if inPanic && ours || !more {
			return fmt.Sprintf("%s:%d", frame.File, frame.Line)
		}
		inPanic = inPanic || frame.Function == "runtime.gopanic"
	}
}
