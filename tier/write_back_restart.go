package tier

import (
	"context"
	"errors"
	"slices"
)

// resume takes over what an earlier store over the same memory had still to write. What the lease
// pins is taken beyond the limits, too.
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
			w.options.Logger.Warn("tier: an object with a pending write is gone, and no lower level gets it: see what else writes to the segment",
				"object", keys[i].String(), "error", placed.Err)
			continue
		}
		take(placed)
	}
	if levels != 0 {
		beyond := w.adoptCommitted(take)
		there = append(there, beyond...)
	}
	for _, placed := range parentsFirst(there) {
		p := w.pending[placed.Object.Key]
		if p == nil {
			w.addBeyond(placed.Object, levels)
			continue
		}
		p.recheck = true
		w.enqueue(p, levels)
		w.review(p) // it ends if no level is written to any more
	}
}

// adoptCommitted pins and takes what leases of clients have pinned, and the store's lease has not. It returns what is to
// wait without a pin: beyond the limits, or without a record in the table of leases. A process that was killed in a
// Commit, before it began the pending write, has left the object pinned, and there is no telling it from what a client
// reads.
func (w *writeBack) adoptCommitted(take func(Placed)) (beyond []Placed) {
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
			beyond = append(beyond, Placed{Object: found.Object})
		}
	}
	return beyond
}

// addBeyond makes a pending write without a pin of what a lease of a client has pinned.
func (w *writeBack) addBeyond(o Object, levels levelSet) {
	if !w.addUnpinned(o, levels) {
		w.refused += w.countRefused(levels, o, errQuota)
		return
	}
	p := w.pending[o.Key]
	p.recheck, p.beyond = true, true
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
