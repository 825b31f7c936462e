package model

import "slices"

// lruCache is vLLM's LRUCache (vllm/utils/cache.py over cachetools), as a list that is searched.
type lruCache struct {
	capacity float64
	growAnew bool // as cachetools before its version 8, see put
	ghosts   bool // touch leaves absent keys in the order
	entries  []lruEntry

	hits, total         int64
	hitsThen, totalThen int64 // at the last stat with delta
}

// lruEntry is a place in the order of use, the oldest first. A ghost has a place and no value.
type lruEntry struct {
	key    string
	size   int64
	value  any
	pinned bool
	ghost  bool
}

// place returns the index of a key in the order, ghosts included, or -1.
func (c *lruCache) place(key string) int {
	return slices.IndexFunc(c.entries, func(e lruEntry) bool { return e.key == key })
}

// find returns the index of a key that has a value, or -1.
func (c *lruCache) find(key string) int {
	if i := c.place(key); i >= 0 && !c.entries[i].ghost {
		return i
	}
	return -1
}

// live returns the entries that have a value, oldest first.
func (c *lruCache) live() []lruEntry {
	return slices.DeleteFunc(slices.Clone(c.entries), func(e lruEntry) bool { return e.ghost })
}

func (c *lruCache) size() (sum int64) {
	for _, e := range c.entries {
		sum += e.size
	}
	return sum
}

func (c *lruCache) remove(i int) lruEntry {
	e := c.entries[i]
	c.entries = slices.Delete(c.entries, i, i+1)
	return e
}

func (c *lruCache) makeNewest(i int) { c.entries = append(c.entries, c.remove(i)) }

// put stores a value. It is refused if it exceeds the cache, if everything that could make room
// is pinned, and it never ends (hang) if the oldest that could is a ghost: vLLM then removes the
// ghost's value, of which there is none, again and again.
func (c *lruCache) put(key string, size int64, value any) error {
	if float64(size) > c.capacity {
		return tooLarge(key, size, c.capacity)
	}
	for !c.fits(key, size) {
		oldest := slices.IndexFunc(c.entries, func(e lruEntry) bool { return !e.pinned })
		switch {
		case oldest < 0:
			return allPinned()
		case c.entries[oldest].ghost:
			return hang("the eviction for %q comes across %q, which was touched while it was absent", key,
				c.entries[oldest].key)
		}
		c.remove(oldest)
	}
	e := lruEntry{key: key, size: size, value: value}
	if i := c.place(key); i >= 0 {
		e.pinned = c.remove(i).pinned
	}
	c.entries = append(c.entries, e)
	return nil
}

// fits reports whether a value can be stored now. One that is not larger than the value which it
// replaces always can. For a larger one cachetools needs room for the difference, and before its
// version 8 for the whole value beside the old one.
func (c *lruCache) fits(key string, size int64) bool {
	sum := c.size() + size
	if i := c.find(key); i >= 0 {
		if size <= c.entries[i].size {
			return true
		}
		if !c.growAnew {
			sum -= c.entries[i].size
		}
	}
	return float64(sum) <= c.capacity
}

// putIfFits is put, and reports false for what exceeds the cache.
func (c *lruCache) putIfFits(key string, size int64, value any) (stored bool, err error) {
	if float64(size) > c.capacity {
		return false, nil
	}
	return true, c.put(key, size, value)
}

// get returns an entry, makes it the newest and counts the query.
func (c *lruCache) get(key string) (e lruEntry, ok bool) {
	c.total++
	i := c.find(key)
	if i < 0 {
		return e, false
	}
	c.hits++
	e = c.entries[i]
	c.makeNewest(i)
	return e, true
}

func (c *lruCache) touch(key string) {
	i := c.place(key)
	switch {
	case i >= 0:
		c.makeNewest(i)
	case c.ghosts:
		c.entries = append(c.entries, lruEntry{key: key, ghost: true})
	}
}

// pop removes a key, pinned or not. A ghost stays.
func (c *lruCache) pop(key string) (e lruEntry, ok bool) {
	if i := c.find(key); i >= 0 {
		return c.remove(i), true
	}
	return e, false
}

// popOldest removes the oldest entry that is not pinned, or the oldest of all. vLLM returns a
// ghost without removing it.
func (c *lruCache) popOldest(evenPinned bool) (lruEntry, error) {
	i := slices.IndexFunc(c.entries, func(e lruEntry) bool { return evenPinned || !e.pinned })
	switch {
	case i < 0 && evenPinned:
		return lruEntry{}, invalid("the cache is empty")
	case i < 0:
		return lruEntry{}, allPinned()
	case c.entries[i].ghost:
		return c.entries[i], nil
	}
	return c.remove(i), nil
}

// clear removes everything, pinned or not, from the oldest on while there is a value, so that it
// never ends at a ghost in front of one. Ghosts behind the last value stay.
func (c *lruCache) clear() error {
	for len(c.live()) > 0 {
		if c.entries[0].ghost {
			return hang("clear comes across %q, which was touched while it was absent", c.entries[0].key)
		}
		c.remove(0)
	}
	c.hits, c.total, c.hitsThen, c.totalThen = 0, 0, 0, 0
	return nil
}

// stat returns the counts since clear, or with delta since the last call with it.
func (c *lruCache) stat(delta bool) (hits, total int64) {
	if !delta {
		return c.hits, c.total
	}
	hits, total = c.hits-c.hitsThen, c.total-c.totalThen
	c.hitsThen, c.totalThen = c.hits, c.total
	return hits, total
}
