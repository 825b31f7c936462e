package disk

import (
	"math/rand/v2"
	"time"
)

// evictable reports whether e may be evicted now.
func (x *index) evictable(e *entry, now time.Time, minAge time.Duration) bool {
	held := x.holds[e.id] > 0 || x.pinned(e.id, now)
	return e.state == present && !held && (minAge == 0 || !e.young(now, minAge))
}

// young reports whether e was written or asked for less than minAge ago. A modification time in the future,
// as of a file that was copied from another machine, does not count: such a file would stay for ever.
func (e *entry) young(now time.Time, minAge time.Duration) bool {
	newest := e.lastAsked
	if e.newest < now.Add(time.Minute).UnixNano() {
		newest = max(newest, e.newest)
	}
	return now.UnixNano()-newest < int64(minAge)
}

// sample is how many leaves are compared to choose a victim. Each use changes the values of all objects, so a
// sorted list of them would have to be sorted again each time.
const sample = 64

// victim returns the evictable leaf of a sample whose loss costs least per byte; nil if no leaf is evictable.
func (x *index) victim(now time.Time, minAge time.Duration) *entry {
	var best *entry
	var least float64
	compare := func(e *entry) {
		if !x.evictable(e, now, minAge) {
			return
		}
		if v := x.policy.Value(&e.value) / float64(max(e.bytes, 1)); best == nil || v < least {
			best, least = e, v
		}
	}
	// A random sample may have no evictable leaf, though there is one. Only then all leaves are compared.
	if len(x.leaves) > 2*sample {
		for range sample {
			compare(x.leaves[rand.IntN(len(x.leaves))])
		}
		if best != nil {
			return best
		}
	}
	for _, e := range x.leaves {
		compare(e)
	}
	return best
}

// chooseVictims starts the removal of so many objects that at least need bytes, and items files and folders,
// become free; or of none, if all that are evictable would not be enough.
func (x *index) chooseVictims(need int64, items int, now time.Time, minAge time.Duration) []*entry {
	var chosen []*entry
	for need > 0 || items > 0 {
		e := x.victim(now, minAge)
		if e == nil {
			// Objects must not be lost for a Put that fails all the same.
			for _, e := range chosen {
				x.cancelRemoval(e)
			}
			return nil
		}
		// The removal of an object may also free its folders, so the difference is counted.
		freeing, n := x.leavingBytes(), x.items()
		x.startRemoval(e)
		chosen = append(chosen, e)
		need -= x.leavingBytes() - freeing
		items -= n - x.items()
	}
	return chosen
}
