package lru

import (
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/internal/invariants"
)

// CheckStructure reports a broken invariant. There is none unless this package
// is at fault.
func (l *Cache[V]) CheckStructure() error {
	var size int64
	var entries, ghosts int
	for n := l.order.next; n != &l.order; n = n.next {
		if n.prev.next != n || n.next.prev != n {
			return fmt.Errorf("lrusync: the links of %q are broken", n.key)
		}
		in, count := l.entries, &entries
		if n.ghost {
			in, count = l.ghosts, &ghosts
		}
		if in[n.key] != n || n.ghost && n.pinned {
			return fmt.Errorf("lrusync: %q is in the order of use but not in its map", n.key)
		}
		*count++
		size += n.size
	}
	switch {
	case entries != len(l.entries) || ghosts != len(l.ghosts):
		return fmt.Errorf("lrusync: %d entries and %d ghosts in order, %d and %d in the maps",
			entries, ghosts, len(l.entries), len(l.ghosts))
	case size != l.size:
		return fmt.Errorf("lrusync: the entries have %d bytes, %d are accounted", size, l.size)
	case float64(size) > l.capacity:
		return fmt.Errorf("lrusync: %d bytes in a cache of %g", size, l.capacity)
	}
	return nil
}

// checkInvariants is empty in a production build. Large caches are checked now
// and then only, since a check goes through the whole cache.
func (l *Cache[V]) checkInvariants() {
	if invariants.Enabled && (len(l.entries) <= 64 || invariants.Sometimes(1)) {
		invariants.Must(l.CheckStructure())
	}
}

// CheckSettled is CheckStructure while no transaction is open: there are no ghosts then
// where none were before.
func (l *Cache[V]) CheckSettled() error {
	if err := l.CheckStructure(); err != nil {
		return err
	}
	switch {
	case l.journal.open || len(l.journal.log) > 0:
		return errors.New("lrusync: a transaction was left open")
	case len(l.ghosts) > 0:
		return fmt.Errorf("lrusync: a request left %d ghosts", len(l.ghosts))
	}
	return nil
}
