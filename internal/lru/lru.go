package lru

import (
	"fmt"
	"iter"
	"math"
)

// Cache is vLLM's LRUCache (vllm/utils/cache.py over cachetools.LRUCache, all
// releases): a map that is bounded by the sum of its entries' sizes and evicts
// the least recently used. Every oddity that decides what is evicted next is
// kept, since two caches in different processes have to agree.
//
// A Cache is not safe for concurrent use.
//
// What holds between calls:
//   - entries contains every node of the order list that is no ghost, under its key;
//   - size is the sum of the sizes of these;
//   - ghosts contains exactly the nodes of the order list that have no value;
//   - pinned nodes are no ghosts.
type Cache[V any] struct {
	capacity float64
	options  Options[V]

	entries map[string]*node[V]
	ghosts  map[string]*node[V] // see TouchGhost
	order   node[V]             // of the list: order.next is the oldest, order.prev the newest
	size    int64
	hits    int64
	queries int64
	journal journal[V]
}

// node is an entry and its place in the order of use.
type node[V any] struct {
	prev, next *node[V]
	key        string
	value      V
	size       int64
	pinned     bool
	ghost      bool
}

// Options are the choices of [New]; the zero value is usual.
type Options[V any] struct {
	// OnRemove, if not nil, is called for every entry that is evicted, popped or
	// cleared, but not when its value is replaced.
	OnRemove func(key string, v V)
	// OnChange, if not nil, is called before an entry is inserted, becomes the newest or
	// is removed. It is not called for what [Cache.Rollback] takes back.
	OnChange func(c Change, key string, size int64)
	// GrowAnew makes room for a value that replaces a smaller one as if the
	// smaller one stayed beside it, so that more than needed is evicted.
	// cachetools does so before its version 8; which one a vLLM runs on depends
	// on when it was installed. vLLM's mirrored caches never replace a smaller
	// value, so the choice does not matter to them.
	GrowAnew bool
}

// New returns an empty cache. capacity is in the unit of the entries' sizes;
// like upstream's it may have a fraction.
func New[V any](capacity float64, o Options[V]) *Cache[V] {
	l := &Cache[V]{capacity: capacity, options: o, entries: map[string]*node[V]{}, ghosts: map[string]*node[V]{}}
	l.order.prev, l.order.next = &l.order, &l.order
	return l
}

// Put stores a value of the given size and makes it the newest. While the value
// does not fit the oldest entries are evicted, which may include the one that it
// replaces.
//
//   - [TooLargeError] if the size exceeds the capacity; nothing has changed;
//   - [ErrPinned] if nothing more can be evicted; what was evicted stays away.
func (l *Cache[V]) Put(key string, v V, size int64) error {
	if size < 0 {
		return fmt.Errorf("%w: size %d of key %q", errInvalid, size, key)
	}
	if float64(size) > l.capacity {
		return &TooLargeError{Key: key, Size: size, Capacity: l.capacity}
	}
	if err := l.makeRoom(key, size); err != nil {
		return err
	}
	if n := l.entries[key]; n != nil {
		l.before(replaced, n)
		l.size += size - n.size
		n.value, n.size = v, size
		l.moveToNewest(n)
	} else {
		if g := l.ghosts[key]; g != nil {
			l.bury(g)
		}
		l.insert(&node[V]{key: key, value: v, size: size})
	}
	l.checkInvariants()
	return nil
}

// makeRoom evicts the oldest entries until a value of the key fits.
func (l *Cache[V]) makeRoom(key string, size int64) error {
	for {
		grows := size
		if old := l.entries[key]; old != nil {
			if old.size >= size {
				return nil
			}
			if !l.options.GrowAnew {
				grows -= old.size
			}
		}
		if grows <= math.MaxInt64-l.size && float64(l.size+grows) <= l.capacity {
			return nil
		}
		if err := l.evict(); err != nil {
			return err
		}
	}
}

// evict removes the oldest entry that is not pinned.
func (l *Cache[V]) evict() error {
	for n := l.order.next; n != &l.order; n = n.next {
		switch {
		case n.ghost:
			return &HangError{Key: n.key}
		case !n.pinned:
			l.remove(n)
			return nil
		}
	}
	return ErrPinned
}

// Get returns the value of a key, makes it the newest and counts the query
// (Python's get).
func (l *Cache[V]) Get(key string) (v V, ok bool) {
	l.queries++
	n, ok := l.entries[key]
	if !ok {
		return v, false
	}
	l.hits++
	l.moveToNewest(n)
	l.checkInvariants()
	return n.value, true
}

// Peek returns the value of a key and its size, and changes nothing.
func (l *Cache[V]) Peek(key string) (v V, size int64, ok bool) {
	n, ok := l.entries[key]
	if !ok {
		return v, 0, false
	}
	return n.value, n.size, true
}

// Has reports whether a key is cached, and changes nothing.
func (l *Cache[V]) Has(key string) bool { return l.entries[key] != nil }

// Touch makes a key the newest, if it is there.
func (l *Cache[V]) Touch(key string) {
	if n := l.entries[key]; n != nil {
		l.moveToNewest(n)
		l.checkInvariants()
	}
}

// TouchGhost is Touch as it was in vLLM 0.12 to 0.23: an absent key enters the
// order of use, without a value, as a ghost. An eviction that comes across a
// ghost never returned there; here it is a [HangError].
func (l *Cache[V]) TouchGhost(key string) {
	n := l.entries[key]
	if n == nil {
		n = l.ghosts[key]
	}
	if n != nil {
		l.moveToNewest(n)
		return
	}
	n = &node[V]{key: key, ghost: true}
	l.before(haunted, n)
	l.ghosts[key] = n
	n.linkBefore(&l.order)
}

// Replace gives a key another value, of the same size and in the same place. It does
// nothing if the key is absent.
func (l *Cache[V]) Replace(key string, v V) {
	if n := l.entries[key]; n != nil {
		l.before(replaced, n)
		n.value = v
	}
}

// Pop removes a key and returns its value, pinned or not.
func (l *Cache[V]) Pop(key string) (v V, ok bool) {
	n, ok := l.entries[key]
	if !ok {
		return v, false
	}
	l.remove(n)
	l.checkInvariants()
	return n.value, true
}

// Pin keeps a key from being evicted; Pop and Clear remove it all the same. Pin
// reports whether the key is there.
func (l *Cache[V]) Pin(key string) bool { return l.setPinned(key, true) }

// Unpin undoes Pin.
func (l *Cache[V]) Unpin(key string) { l.setPinned(key, false) }

func (l *Cache[V]) setPinned(key string, pinned bool) bool {
	n := l.entries[key]
	if n == nil {
		return false
	}
	l.before(replaced, n)
	n.pinned = pinned
	return true
}

// Clear removes everything, pinned or not, and starts the statistics anew.
func (l *Cache[V]) Clear() {
	for l.order.next != &l.order {
		if n := l.order.next; n.ghost {
			l.bury(n)
		} else {
			l.remove(n)
		}
	}
	l.hits, l.queries = 0, 0
	l.checkInvariants()
}

// Stats counts the calls of Get since the last Clear, and how many found their key, as
// vLLM does (CacheInfo).
func (l *Cache[V]) Stats() (hits, queries int64) { return l.hits, l.queries }

// Len returns the number of entries.
func (l *Cache[V]) Len() int { return len(l.entries) }

// Size returns the sum of the entries' sizes, which never exceeds the capacity.
func (l *Cache[V]) Size() int64 { return l.size }

// Entry is one entry of a cache, for listings.
type Entry[V any] struct {
	Value  V
	Size   int64
	Pinned bool
}

// All lists the entries, oldest first. The cache must not be changed meanwhile.
func (l *Cache[V]) All() iter.Seq2[string, Entry[V]] {
	return func(yield func(string, Entry[V]) bool) {
		for n := l.order.next; n != &l.order; n = n.next {
			if !n.ghost && !yield(n.key, Entry[V]{n.value, n.size, n.pinned}) {
				return
			}
		}
	}
}
