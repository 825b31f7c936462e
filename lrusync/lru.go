package lrusync

import (
	"fmt"
	"iter"
	"math"
)

// LRU is vLLM's LRUCache (vllm/utils/cache.py over cachetools.LRUCache, all
// releases): a map that is bounded by the sum of its entries' sizes and evicts
// the least recently used. Every oddity that decides what is evicted next is
// kept, since two of them in different processes have to agree.
//
// It is not safe for concurrent use.
//
// What holds between calls:
//   - entries has every node of the order list that is no ghost, under its key;
//   - size is the sum of the sizes of these;
//   - ghosts has exactly the nodes of the order list that have no value;
//   - pinned nodes are no ghosts.
type LRU[V any] struct {
	capacity float64
	o        LRUOptions[V]

	entries map[string]*node[V]
	ghosts  map[string]*node[V]
	order   node[V] // sentinel: order.next is the oldest, order.prev the newest
	size    int64

	stats, reported Stats

	log []undo[V] // of the open transaction
	tx  bool

	// trace, if not nil, sees every change of the contents and their order.
	trace func(c change, key string, size int64)
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

// Stats are the queries of a cache since it was made or cleared, as vLLM counts
// them (CacheInfo).
type Stats struct {
	Hits, Total int64
}

// LRUOptions are the choices of [NewLRU]; the zero value is usual.
type LRUOptions[V any] struct {
	// OnRemove, if not nil, is called for every entry that is evicted, popped or
	// cleared, but not when its value is replaced.
	OnRemove func(key string, v V)
	// GrowAnew makes room for a value that replaces a smaller one as if that one
	// stayed beside it, so that more than needed goes. cachetools does so before
	// its version 8; which one a vLLM runs on depends on when it was installed.
	// vLLM's mirrored caches never replace a smaller value, so they don't care.
	GrowAnew bool
}

// NewLRU returns an empty cache. capacity is in the unit of the entries' sizes;
// like upstream's it may have a fraction.
func NewLRU[V any](capacity float64, o LRUOptions[V]) *LRU[V] {
	l := &LRU[V]{capacity: capacity, o: o, entries: map[string]*node[V]{}, ghosts: map[string]*node[V]{}}
	l.order.prev, l.order.next = &l.order, &l.order
	return l
}

// Put stores a value of the given size and makes it the newest. While it does
// not fit the oldest entries go, which may include the one that it replaces.
//
//   - [TooLargeError] if the size exceeds the capacity; nothing has changed;
//   - [ErrPinned] if nothing more can go; what went stays away;
//   - [ErrGhost] if a ghost is next to go, where upstream never returns.
func (l *LRU[V]) Put(key string, v V, size int64) error {
	if size < 0 {
		return fmt.Errorf("%w: size %d of key %q", ErrInvalid, size, key)
	}
	if float64(size) > l.capacity {
		return &TooLargeError{Key: key, Size: size, Capacity: l.capacity}
	}
	for n := l.entries[key]; n == nil || n.size < size; n = l.entries[key] {
		more := size
		if n != nil && !l.o.GrowAnew {
			more -= n.size
		}
		if more <= math.MaxInt64-l.size && float64(l.size+more) <= l.capacity {
			break
		}
		if err := l.evict(); err != nil {
			return err
		}
	}
	n := l.entries[key]
	switch g := l.ghosts[key]; {
	case n != nil:
		l.record(undoSet, n)
		l.size += size - n.size
		n.value, n.size = v, size
		l.toNewest(n)
	case g != nil:
		l.removeGhost(g)
		fallthrough
	default:
		l.insert(&node[V]{key: key, value: v, size: size})
	}
	return nil
}

// PutIfFits is Put, but false instead of an error when the value is larger than
// the whole cache (vLLM 0.29 on).
func (l *LRU[V]) PutIfFits(key string, v V, size int64) (bool, error) {
	if float64(size) > l.capacity {
		return false, nil
	}
	return true, l.Put(key, v, size)
}

// evict removes the oldest entry that is not pinned.
func (l *LRU[V]) evict() error {
	n := l.oldest(false)
	switch {
	case n == nil:
		return ErrPinned
	case n.ghost:
		return &GhostError{Key: n.key}
	}
	l.remove(n)
	return nil
}

// oldest returns the oldest node, or nil. Ghosts can't be pinned.
func (l *LRU[V]) oldest(evenPinned bool) *node[V] {
	for n := l.order.next; n != &l.order; n = n.next {
		if evenPinned || !n.pinned {
			return n
		}
	}
	return nil
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
	l.toNewest(n)
	return n.value, true
}

// Item returns the value of a key, makes it the newest and counts a hit; a miss
// is not counted (Python's []).
func (l *LRU[V]) Item(key string) (v V, ok bool) {
	n, ok := l.entries[key]
	if !ok {
		return v, false
	}
	l.stats.Hits++
	l.stats.Total++
	l.toNewest(n)
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
		l.toNewest(n)
	}
}

// TouchGhost is Touch as it was in vLLM 0.12 to 0.23: an absent key enters the
// order of use, without a value. See [GhostError] for what comes of it.
func (l *LRU[V]) TouchGhost(key string) {
	n := l.entries[key]
	if n == nil {
		n = l.ghosts[key]
	}
	if n != nil {
		l.toNewest(n)
		return
	}
	n = &node[V]{key: key, ghost: true}
	l.ghosts[key] = n
	l.record(undoGhost, n)
	n.linkBefore(&l.order)
}

// Pop removes a key and returns its value, pinned or not.
func (l *LRU[V]) Pop(key string) (v V, ok bool) {
	n, ok := l.entries[key]
	if !ok {
		return v, false
	}
	l.remove(n)
	return n.value, true
}

// PopOldest removes the oldest entry that is not pinned, or the oldest of all.
// It fails with [ErrPinned] when there is none, and with [ErrGhost].
func (l *LRU[V]) PopOldest(evenPinned bool) (key string, v V, err error) {
	n := l.oldest(evenPinned)
	switch {
	case n == nil:
		return "", v, ErrPinned
	case n.ghost:
		return "", v, &GhostError{Key: n.key}
	}
	l.remove(n)
	return n.key, n.value, nil
}

// Pin keeps a key from being evicted; Pop, PopOldest(true) and Clear remove it
// all the same. It reports whether the key is there.
func (l *LRU[V]) Pin(key string) bool {
	n := l.entries[key]
	if n == nil {
		return false
	}
	l.pin(n, true)
	return true
}

// Unpin undoes Pin.
func (l *LRU[V]) Unpin(key string) {
	if n := l.entries[key]; n != nil {
		l.pin(n, false)
	}
}

func (l *LRU[V]) pin(n *node[V], pinned bool) {
	l.record(undoSet, n)
	n.pinned = pinned
}

// Clear removes everything, pinned or not, and starts the statistics anew.
func (l *LRU[V]) Clear() {
	for l.order.next != &l.order {
		if n := l.order.next; n.ghost {
			l.removeGhost(n)
		} else {
			l.remove(n)
		}
	}
	l.stats, l.reported = Stats{}, Stats{}
}

// Stats returns the counts since the last Clear; with delta, what came on top
// since the last call with delta.
func (l *LRU[V]) Stats(delta bool) Stats {
	s := l.stats
	if delta {
		s.Hits -= l.reported.Hits
		s.Total -= l.reported.Total
		l.reported = l.stats
	}
	return s
}

// Len returns the number of entries.
func (l *LRU[V]) Len() int { return len(l.entries) }

// Size returns the sum of the entries' sizes.
func (l *LRU[V]) Size() int64 { return l.size }

// Capacity returns what Size never exceeds.
func (l *LRU[V]) Capacity() float64 { return l.capacity }

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

// CheckStructure reports a broken invariant; there is none unless this package
// is at fault.
func (l *LRU[V]) CheckStructure() error {
	var size int64
	var entries, ghosts int
	for n := l.order.next; n != &l.order; n = n.next {
		if n.prev.next != n || n.next.prev != n {
			return fmt.Errorf("lrusync: the links of %q are broken", n.key)
		}
		in, count := l.entries, &entries
		if n.ghost {
			in, count = l.ghosts, &ghosts
		}
		if in[n.key] != n || n.ghost && n.pinned {
			return fmt.Errorf("lrusync: %q is in the order of use but not in its map", n.key)
		}
		*count++
		size += n.size
	}
	switch {
	case entries != len(l.entries) || ghosts != len(l.ghosts):
		return fmt.Errorf("lrusync: %d entries and %d ghosts in order, %d and %d in the maps", entries, ghosts, len(l.entries), len(l.ghosts))
	case size != l.size:
		return fmt.Errorf("lrusync: the entries have %d bytes, %d are accounted", size, l.size)
	case float64(size) > l.capacity:
		return fmt.Errorf("lrusync: %d bytes in a cache of %g", size, l.capacity)
	case l.tx:
		return fmt.Errorf("lrusync: a transaction was left open")
	}
	return nil
}
