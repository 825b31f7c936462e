package lrusync

import (
	"fmt"
	"iter"
	"math"
)

// LRU is vLLM's LRUCache (vllm/utils/cache.py over cachetools.LRUCache, all
// releases): a map that is bounded by the sum of its entries' sizes and evicts
// the least recently used. Every oddity that decides what is evicted next is
// kept, since two caches in different processes have to agree.
//
// An LRU is not safe for concurrent use.
//
// What holds between calls:
//   - entries contains every node of the order list that is no ghost, under its key;
//   - size is the sum of the sizes of these;
//   - ghosts contains exactly the nodes of the order list that have no value;
//   - pinned nodes are no ghosts.
type LRU[V any] struct {
	capacity float64
	options  LRUOptions[V]

	entries map[string]*node[V]
	ghosts  map[string]*node[V] // see touchGhost
	order   node[V]             // of the list: order.next is the oldest, order.prev the newest
	size    int64
	stats   Stats

	// observe, if not nil, is called before every change.
	observe func(change, *node[V])
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

// change is what happens to a node.
type change byte

// The digests of two processes contain the first three, which must not change.
const (
	inserted change = iota + 1
	moved           // became the newest
	removed
	replaced // value, size or pin
	haunted  // became a ghost
	buried   // was a ghost
)

// Stats counts the queries of a cache since it was made or cleared, as vLLM does
// (CacheInfo).
type Stats struct {
	Hits, Total int64
}

// LRUOptions are the choices of [NewLRU]; the zero value is usual.
type LRUOptions[V any] struct {
	// OnRemove, if not nil, is called for every entry that is evicted, popped or
	// cleared, but not when its value is replaced.
	OnRemove func(key string, v V)
	// GrowAnew makes room for a value that replaces a smaller one as if the
	// smaller one stayed beside it, so that more than needed is evicted.
	// cachetools does so before its version 8; which one a vLLM runs on depends
	// on when it was installed. vLLM's mirrored caches never replace a smaller
	// value, so the choice does not matter to them.
	GrowAnew bool
}

// NewLRU returns an empty cache. capacity is in the unit of the entries' sizes;
// like upstream's it may have a fraction.
func NewLRU[V any](capacity float64, o LRUOptions[V]) *LRU[V] {
	l := &LRU[V]{capacity: capacity, options: o, entries: map[string]*node[V]{}, ghosts: map[string]*node[V]{}}
	l.order.prev, l.order.next = &l.order, &l.order
	return l
}

// Put stores a value of the given size and makes it the newest. While the value
// does not fit the oldest entries are evicted, which may include the one that it
// replaces.
//
//   - [TooLargeError] if the size exceeds the capacity; nothing has changed;
//   - [ErrPinned] if nothing more can be evicted; what was evicted stays away.
func (l *LRU[V]) Put(key string, v V, size int64) error {
	if size < 0 {
		return fmt.Errorf("%w: size %d of key %q", ErrInvalid, size, key)
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
func (l *LRU[V]) makeRoom(key string, size int64) error {
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
func (l *LRU[V]) evict() error {
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
func (l *LRU[V]) Get(key string) (v V, ok bool) {
	l.stats.Total++
	n, ok := l.entries[key]
	if !ok {
		return v, false
	}
	l.stats.Hits++
	l.moveToNewest(n)
	l.checkInvariants()
	return n.value, true
}

// Peek returns the value of a key and its size, and changes nothing.
func (l *LRU[V]) Peek(key string) (v V, size int64, ok bool) {
	n, ok := l.entries[key]
	if !ok {
		return v, 0, false
	}
	return n.value, n.size, true
}

// Has reports whether a key is cached, and changes nothing.
func (l *LRU[V]) Has(key string) bool { return l.entries[key] != nil }

// Touch makes a key the newest, if it is there.
func (l *LRU[V]) Touch(key string) {
	if n := l.entries[key]; n != nil {
		l.moveToNewest(n)
		l.checkInvariants()
	}
}

// touchGhost is Touch as it was in vLLM 0.12 to 0.23: an absent key enters the
// order of use, without a value, as a ghost. An eviction that comes across a
// ghost never returned there; here it is a [HangError].
func (l *LRU[V]) touchGhost(key string) {
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

// Pop removes a key and returns its value, pinned or not.
func (l *LRU[V]) Pop(key string) (v V, ok bool) {
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
func (l *LRU[V]) Pin(key string) bool { return l.setPinned(key, true) }

// Unpin undoes Pin.
func (l *LRU[V]) Unpin(key string) { l.setPinned(key, false) }

func (l *LRU[V]) setPinned(key string, pinned bool) bool {
	n := l.entries[key]
	if n == nil {
		return false
	}
	l.before(replaced, n)
	n.pinned = pinned
	return true
}

// Clear removes everything, pinned or not, and starts the statistics anew.
func (l *LRU[V]) Clear() {
	for l.order.next != &l.order {
		if n := l.order.next; n.ghost {
			l.bury(n)
		} else {
			l.remove(n)
		}
	}
	l.stats = Stats{}
	l.checkInvariants()
}

// Stats returns the counts of Get since the last Clear.
func (l *LRU[V]) Stats() Stats { return l.stats }

// Len returns the number of entries.
func (l *LRU[V]) Len() int { return len(l.entries) }

// Size returns the sum of the entries' sizes, which never exceeds the capacity.
func (l *LRU[V]) Size() int64 { return l.size }

// Entry is one entry of a cache, for listings.
type Entry[V any] struct {
	Value  V
	Size   int64
	Pinned bool
}

// All lists the entries, oldest first. The cache must not be changed meanwhile.
func (l *LRU[V]) All() iter.Seq2[string, Entry[V]] {
	return func(yield func(string, Entry[V]) bool) {
		for n := l.order.next; n != &l.order; n = n.next {
			if !n.ghost && !yield(n.key, Entry[V]{n.value, n.size, n.pinned}) {
				return
			}
		}
	}
}
