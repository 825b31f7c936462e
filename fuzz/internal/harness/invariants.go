package harness

import (
	"fmt"
	"slices"

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
