package disk

import (
	"time"

	"github.com/ringcache/ringcache/internal/evict"
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

// victim returns which of some leaves goes first: one whose loss costs little by the byte; nil if none of them is
// evictable.
func (x *index) victim(leaves *evict.Candidates[*entry], now time.Time, minAge time.Duration) *entry {
	best, _ := leaves.Cheapest(func(e *entry) (float64, bool) {
		return x.policy.Value(&e.value) / float64(max(e.bytes, 1)), x.evictable(e, now, minAge)
	})
	return best
}

// chooseVictims starts the removal of so many objects that enough becomes true; or of none, if all that are evictable
// would not be enough.
func (x *index) chooseVictims(leaves *evict.Candidates[*entry], enough func() bool, now time.Time,
	minAge time.Duration) []*entry {
	var chosen []*entry
	for !enough() {
		e := x.victim(leaves, now, minAge)
		if e == nil {
			// Objects must not be lost for a Put that fails all the same.
			for _, e := range chosen {
				x.cancelRemoval(e)
			}
			return nil
		}
		x.startRemoval(e)
		chosen = append(chosen, e)
	}
	return chosen
}
