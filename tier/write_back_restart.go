package tier

import (
	"context"
	"errors"
	"slices"
)

// resume takes over what an earlier store over the same memory had still to write. What the lease has was
// promised, so it counts beyond the limits, too.
func (w *writeBack) resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	levels := w.levelsWith(Through, Back)
	var there []Placed
	take := func(placed Placed) {
		p := w.attach(placed)
		p.left = levels
		w.charge(p)
		there = append(there, placed)
	}
	keys := w.lease.State().Pinned
	for i, placed := range w.lease.Pin(keys) {
		if placed.Err != nil {
			w.options.Logger.Warn("tier: an object with a pending write is gone",
				"object", keys[i].String(), "error", placed.Err)
			continue
		}
		take(placed)
	}
	if levels != 0 {
		w.adoptCommitted(take, levels)
	}
	for _, placed := range parentsFirst(there) {
		p := w.pending[placed.Object.Key]
		p.recheck = true
		w.enqueue(p, levels)
		w.review(p) // it ends if no level is written to any more
	}
}

// adoptCommitted pins and takes what leases of clients have pinned, and the store's lease has not. Beyond the limits, or
// without a record in the table of leases, it waits without a pin. A process that was killed in a Commit, before it began the pending write, has left the object
// pinned, and there is no telling it from what a client reads.
func (w *writeBack) adoptCommitted(take func(Placed), levels levelSet) {
	seen := map[Key]bool{}
	for _, l := range w.clientLeases() {
		for _, k := range l.Pinned {
			if seen[k] || w.pending[k] != nil {
				continue
			}
			seen[k] = true
			found := w.memory.Stat(context.Background(), []Key{k})[0]
			if found.Err != nil {
				continue
			}
			if w.hasRoom(found.Object) {
				placed := w.lease.Pin([]Key{k})[0]
				if placed.Err == nil {
					take(placed)
				}
				if !errors.Is(placed.Err, ErrFull) { // it has no record for the pin
					continue
				}
			}
			if w.addUnpinned(found.Object, levels) {
				w.pending[k].recheck, w.pending[k].beyond = true, true
			} else {
				w.refused += w.countRefused(levels, found.Object, errQuota)
			}
		}
	}
}

// parentsFirst sorts what a lease has, in any order, as it was stored: a parent precedes its children.
func parentsFirst(placed []Placed) []Placed {
	rest := make(map[Key]Placed, len(placed))
	for _, p := range placed {
		rest[p.Object.Key] = p
	}
	sorted := make([]Placed, 0, len(placed))
	for _, p := range placed {
		from := len(sorted)
		for p, ok := rest[p.Object.Key]; ok; {
			delete(rest, p.Object.Key)
			sorted = append(sorted, p)
			parent, _ := p.Object.ParentKey()
			p, ok = rest[parent]
		}
		slices.Reverse(sorted[from:])
	}
	return sorted
}
