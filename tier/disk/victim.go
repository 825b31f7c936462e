package disk

import (
	"math/rand/v2"
	"time"
)

// evictable reports whether e may go for room.
func (x *index) evictable(e *entry, now time.Time, minAge time.Duration) bool {
	return e.state == present && x.holds[e.id] == 0 && !x.promised(e.id, now) && (minAge == 0 || !e.young(now, minAge))
}

// young reports whether e was written or looked at a short time ago. A time in the future, as of a file that was
// copied from somewhere, does not count: such a file would stay for ever.
func (e *entry) young(now time.Time, minAge time.Duration) bool {
	newest := e.looked
	if e.seen < now.Add(time.Minute).UnixNano() {
		newest = max(newest, e.seen)
	}
	return now.UnixNano()-newest < int64(minAge)
}

// sample is how many leaves are compared to choose one that goes. The values of all objects change
// with every use, so an order of them would have to be made again each time.
const sample = 64

// victim returns the leaf that loses the least per byte, of a sample; nil if nothing may go.
func (x *index) victim(now time.Time, minAge time.Duration) *entry {
	var best *entry
	var least float64
	try := func(e *entry) {
		if !x.evictable(e, now, minAge) {
			return
		}
		if v := x.policy.Value(&e.value) / float64(max(e.bytes, 1)); best == nil || v < least {
			best, least = e, v
		}
	}
	if len(x.leaves) > 2*sample {
		for range sample {
			try(x.leaves[rand.IntN(len(x.leaves))])
		}
		if best != nil {
			return best
		}
	}
	for _, e := range x.leaves {
		try(e)
	}
	return best
}

// choose claims so many objects that at least so many bytes, and files and folders, go; or none.
func (x *index) choose(need int64, items int, now time.Time, minAge time.Duration) []*entry {
	var chosen []*entry
	for need > 0 || items > 0 {
		e := x.victim(now, minAge)
		if e == nil {
			for _, e := range chosen {
				x.unclaim(e)
			}
			return nil
		}
		freeing, n := x.freeing(), x.items()
		x.claim(e)
		chosen = append(chosen, e)
		need -= x.freeing() - freeing
		items -= n - x.items()
	}
	return chosen
}
