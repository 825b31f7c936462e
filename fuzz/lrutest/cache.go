package lrutest

// Cache is an LRU cache under test. The size of a value is its length.
type Cache interface {
	// Put stores a value, makes it the newest, and evicts the oldest while that is needed. It
	// returns false if the value can't be stored.
	Put(key string, value []byte) bool
	// Get returns the value of a key, and makes it the newest.
	Get(key string) (value []byte, ok bool)
	// Remove removes a key, and reports whether it was there.
	Remove(key string) bool
	// Entries lists what is there, oldest first, and changes nothing.
	Entries() []Entry
	// Size returns the bytes that the cache counts for all entries together.
	Size() int64
}

// Entry is an entry of a cache, without its value.
type Entry struct {
	Key    string
	Size   int64 // bytes
	Pinned bool
}

// What a cache has besides is tested, too.
type (
	// Toucher makes a key the newest, if it is there.
	Toucher interface{ Touch(key string) }
	// Clearer removes everything, and starts the counts anew.
	Clearer interface{ Clear() }
	// Pinner keeps a key from being evicted, and reports whether it is there.
	Pinner interface{ Pin(key string) bool }
	// Popper removes the oldest entry that is not pinned, or the oldest of all.
	Popper interface {
		PopOldest(evenPinned bool) (key string, ok bool)
	}
	// Counter counts the calls of Get, and those that found their key.
	Counter interface{ Counts() (hits, total int64) }
)

// without lists the operations that a cache does not have.
func without(c Cache) []string {
	out := []string{"lru.has"} // no method, and Entries says it
	add := func(ok bool, operations ...string) {
		if !ok {
			out = append(out, operations...)
		}
	}
	_, ok := c.(Toucher)
	add(ok, "lru.touch")
	_, ok = c.(Clearer)
	add(ok, "lru.clear")
	_, ok = c.(Pinner)
	add(ok, "lru.pin")
	_, ok = c.(Popper)
	add(ok, "lru.popitem")
	_, ok = c.(Counter)
	add(ok, "lru.stat")
	return append(out, "lru.put_if_fits", "lru.state")
}
