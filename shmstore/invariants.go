package shmstore

import "github.com/ringcache/ringcache/internal/invariants"

// What is verified at the few places where state changes, in builds that check invariants.
// CheckStructure verifies all that holds between calls.

// mustHold panics with what is broken. There is nothing unless this package is at fault.
func mustHold(check func(*Object) error, o *Object) {
	if invariants.Enabled {
		invariants.Must(check(o))
	}
}
