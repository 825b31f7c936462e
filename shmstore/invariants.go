package shmstore

import (
	"fmt"

	"github.com/ringcache/ringcache/internal/invariants"
)

// What is verified at the few places where state changes, in builds that check invariants.
// CheckStructure verifies all that holds between calls.

// mustHold panics with what is broken. There is nothing unless this package is at fault.
func mustHold(check func(*Object) error, o *Object) {
	if invariants.Enabled {
		invariants.Must(check(o))
	}
}

// checkHeld verifies the counts of an object whose leases have changed.
func (s *Store) checkHeld(o *Object) error {
	if o.sent < 0 || o.leases < o.sent || s.leases < int(o.leases) {
		return fmt.Errorf("shmstore: key %q has %d leases, %d of them sent; the store has %d", o.key, o.leases, o.sent, s.leases)
	}
	return nil
}

// checkFiled verifies the sums of a store and a tenant, of which an object has moved to another
// class.
func (s *Store) checkFiled(o *Object) error {
	for c, n := range s.bytes {
		if n < 0 {
			return fmt.Errorf("shmstore: %d bytes in class %d after key %q moved to %d", n, c, o.key, o.class)
		}
	}
	if t := s.tenants[o.tenant()]; t != nil && (t.idleBytes < 0 || t.used < t.idleBytes) {
		return fmt.Errorf("shmstore: tenant %q has %d bytes, %d of them idle", o.tenant(), t.used, t.idleBytes)
	}
	return nil
}

// checkFreed verifies that nobody has an object whose chunk was freed, and that no bytes were
// lost.
func (s *Store) checkFreed(o *Object) error {
	if o.leases != 0 || o.pinned || o.quarantined != nil || o.cached.Live() || o.entry >= 0 || o.class != classNone {
		return fmt.Errorf("shmstore: the chunk of key %q was freed, which has %d leases (pinned: %v, in quarantine: %v, class %d, entry %d)",
			o.key, o.leases, o.pinned, o.quarantined != nil, o.class, o.entry)
	}
	return s.checkBytes(o)
}

// checkBytes verifies that objects take as many bytes as chunks, after a chunk came or went.
func (s *Store) checkBytes(o *Object) error {
	sum := int64(0)
	for _, n := range s.bytes {
		sum += n
	}
	if used := int64(s.pool.Used()); sum != used {
		return fmt.Errorf("shmstore: objects take %d bytes and chunks %d, after a change of key %q", sum, used, o.key)
	}
	return nil
}
