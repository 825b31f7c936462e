package mmcache

import (
	"time"

	"github.com/ringcache/ringcache/lrusync"
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

func (s *Stats) refuse(c Cause) {
	switch c {
	case Full:
		s.RefusedFull++
	case TooLarge:
		s.RefusedTooLarge++
	case InUse:
		s.RefusedInUse++
	}
}

func (s *Stats) open() int64 { return s.Begun - s.RolledBack - s.Finished - s.Aborted }

func (c *Cache) count(f func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.stats)
}

// countQuery counts the question for an item, as upstream would at each of its
// places: when it was made for the first, the others are hits.
func (c *Cache) countQuery(s *slot, hit bool) {
	s.hit = hit
	c.count(func(st *Stats) {
		st.Total += s.places
		switch {
		case c.o.Mode == None:
		case hit:
			st.Hits += s.places
		default:
			st.Hits += s.places - 1
		}
	})
}

// Stats returns the counts and the state now.
func (c *Cache) Stats() Stats {
	var items, bytes, quarantined int64
	if s, ok := c.back.(*shared); ok {
		items, bytes, quarantined = s.sums()
	} else {
		var all []lrusync.KeySize
		all, bytes = c.back.contents()
		items = int64(len(all))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.CachedItems, s.CachedBytes = items, bytes
	s.InFlight, s.InFlightLimit = c.budget.inUse(), c.budget.limit
	s.Quarantined = quarantined
	s.Epoch = c.epoch
	s.Open, s.Holds = s.open(), int64(len(c.holds))
	s.Waiting = int64(len(c.ids)) - s.Open
	return s
}

// HitsSince returns hits and queries since its last call, as vLLM's
// make_stats(delta=True).
func (c *Cache) HitsSince() lrusync.Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := lrusync.Stats{Hits: c.stats.Hits - c.reported.Hits, Total: c.stats.Total - c.reported.Total}
	c.reported = lrusync.Stats{Hits: c.stats.Hits, Total: c.stats.Total}
	return d
}
