// Package invariants holds the switch of checks that a production build leaves
// out: whether a structure is still in order, after each change.
//
// The checks are in a build with the race detector, and in one with the tag
// invariants:
//
//	go test -tags invariants ./...
//
// A check stands behind the constant, so that the compiler removes it elsewhere:
//
//	if invariants.Enabled {
//		invariants.Must(s.CheckStructure())
//	}
package invariants

import (
	"fmt"
	"math/rand/v2"
)

// Must panics with a broken invariant. There is none unless the calling package
// is at fault.
func Must(err error) {
	if Enabled && err != nil {
		panic(fmt.Errorf("broken invariant: %w", err))
	}
}

// Sometimes reports true in percent of 100 calls, at random, and never where
// checks are off. It is for checks that are too slow for every change.
func Sometimes(percent int) bool {
	return Enabled && rand.IntN(100) < percent
}
