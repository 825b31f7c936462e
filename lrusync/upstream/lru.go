package upstream

import (
	"errors"

	"github.com/ringcache/ringcache/internal/lru"
	"github.com/ringcache/ringcache/lrusync"
)

// LRUCache is an LRU with the methods of Python's class that no Go program needs.
// It is not safe for concurrent use.
type LRUCache[V any] struct {
	*cache[V]
	last lrusync.Stats // that Stat has returned the difference to
}

// cache keeps the field of an LRUCache to this package.
type cache[V any] = lru.Cache[V]

// LRUOptions are the choices of [NewLRUCache]; the zero value is usual. OnRemove, if not
// nil, is called for every entry that is evicted, popped or cleared, but not when its
// value is replaced. GrowAnew makes room for a value that replaces a smaller one as
// cachetools before its version 8 does: as if the smaller one stayed beside it.
type LRUOptions[V any] = lru.Options[V]

// NewLRUCache returns an empty cache. capacity is in the unit of the entries' sizes; as
// Python's it may have a fraction.
func NewLRUCache[V any](capacity float64, o LRUOptions[V]) *LRUCache[V] {
	return &LRUCache[V]{cache: lru.New(capacity, o)}
}

// PutIfFits is Put, but false instead of an error when the value is larger than
// the whole cache (vLLM 0.29 on).
func (c *LRUCache[V]) PutIfFits(key string, v V, size int64) (bool, error) {
	err := c.Put(key, v, size)
	if errors.Is(err, lru.ErrTooLarge) {
		return false, nil
	}
	return true, err
}

// GetItem returns the value of a key, makes it the newest and counts a hit
// (Python's []). Other than by Get, a miss is not counted.
func (c *LRUCache[V]) GetItem(key string) (v V, ok bool) {
	if !c.Has(key) {
		return v, false
	}
	return c.Get(key)
}

// PopItem removes the oldest entry that is not pinned, or the oldest of all. It
// fails when there is none.
func (c *LRUCache[V]) PopItem(removePinned bool) (key string, v V, err error) {
	for key, e := range c.All() {
		if removePinned || !e.Pinned {
			c.Pop(key)
			return key, e.Value, nil
		}
	}
	return "", v, lru.ErrPinned
}

// Stat returns the counts since the last Clear; with delta, what was added since
// the last call with delta.
func (c *LRUCache[V]) Stat(delta bool) lrusync.Stats {
	hits, queries := c.Stats()
	now := lrusync.Stats{Hits: hits, Total: queries}
	if !delta {
		return now
	}
	since := lrusync.Stats{Hits: now.Hits - c.last.Hits, Total: now.Total - c.last.Total}
	c.last = now
	return since
}

// Clear removes everything, pinned or not, and starts the statistics anew.
func (c *LRUCache[V]) Clear() {
	c.cache.Clear()
	c.last = lrusync.Stats{}
}
