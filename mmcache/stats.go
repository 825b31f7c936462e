package mmcache

import (
	"errors"
	"time"

	"github.com/ringcache/ringcache/objstore"
)

// Stats are counts since the cache was opened, and its state now.
type Stats struct {
	// Hits and Total are the items that requests asked for, as vLLM counts them
	// (CacheInfo): since the last Clear.
	Hits, Total int64

	// Items that were made, that waited for another request to make them, and
	// whose producer failed.
	Produced, Coalesced, ProduceErrors int64
	// Items that were made but not cached, by cause.
	RefusedFull, RefusedTooLarge, RefusedInUse int64
	Invalidated                                int64

	// Items that had another content than was made under their key before, if
	// Options.VerifyHits is set.
	Changed int64

	// Requests that had to wait for memory in Begin, and how long altogether.
	Waits  int64
	Waited time.Duration

	// Requests by how they went. Those of Begun that are not RolledBack, Finished
	// or Aborted are Open. Misused are calls of Finish and Abort before Commit,
	// which do nothing: the request stays open.
	Begun, Committed, RolledBack, Finished, Aborted int64
	Misused                                         int64
	// Items that the engine missed, requests that were sent again, and drifts
	// that were repaired (mode lru).
	Missed, Resent, Repaired int64

	// CachedItems and CachedBytes are what the cache holds; in mode lru the
	// engine's, in mode shm bytes of the ring with padding. InFlight is what
	// requests hold besides, of at most InFlightLimit.
	CachedItems, CachedBytes int64
	InFlight, InFlightLimit  int64
	// Quarantined are the items that aborted requests keep in mode shm.
	Quarantined int64
	// Open are the requests that have not ended; Waiting are those that wait in
	// Begin, Holds the holds that were not released. See Cache.Holders.
	Open, Waiting, Holds int64
	// Epoch is the number of times that the cache was cleared.
	Epoch uint64
}

// refuse counts why an item is not cached.
func (s *Stats) refuse(cause error) {
	switch {
	case errors.Is(cause, objstore.ErrFull):
		s.RefusedFull++
	case errors.Is(cause, objstore.ErrTooLarge):
		s.RefusedTooLarge++
	case errors.Is(cause, objstore.ErrKeyExists):
		s.RefusedInUse++
	}
}

func (s *Stats) open() int64 { return s.Begun - s.RolledBack - s.Finished - s.Aborted }

// ended counts a request that was open.
func (s *Stats) ended(how ending) {
	switch how {
	case finish:
		s.Finished++
	case abort:
		s.Aborted++
	default:
		s.RolledBack++
	}
}

func (c *cache) count(f func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.stats)
}

// query counts the question for an item, as upstream would at each of its
// places: when it was made for the first, the others are hits. c.mu is held.
func (c *cache) query(st *Stats, w *wanted, hit bool) {
	w.hit = hit
	places := int64(w.places)
	st.Total += places
	switch {
	case c.neverHits:
	case hit:
		st.Hits += places
	default:
		st.Hits += places - 1
	}
}

func (c *cache) Stats() Stats {
	items, bytes, quarantined := c.backend.measure()
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Committed = c.committed.Load()
	s.CachedItems, s.CachedBytes, s.Quarantined = items, bytes, quarantined
	s.InFlight, s.InFlightLimit = c.budget.inUse(), c.budget.limit
	s.Open, s.Holds = s.open(), int64(len(c.holds))
	s.Waiting = int64(len(c.ids)) - s.Open
	return s
}
