package tier

import (
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxNegative = 1 << 14 // keys
	versionRows = 1 << 12
)

// negativeCache remembers for Options.NegativeTTL which keys no level has, see isPlainMiss. Storing a key removes
// its entry, and a lookup that began before that adds none: see version. The time counts from the beginning of the
// lookup, since another host may store the object while the lookup goes on, in a level that was asked already. mu is a
// leaf lock.
//
// See docs/decisions.md, "A miss is remembered from the beginning of its look-up".
type negativeCache struct {
	ttl  time.Duration
	seed maphash.Seed
	// versions count, by a hash of the key, how often such keys were stored.
	versions []atomic.Uint32

	mu     sync.Mutex
	misses map[Key]miss
}

// miss is the answer of a lookup in vain, and until when it is believed.
type miss struct {
	err   error
	until time.Time
}

// newNegativeCache returns an empty cache.
func newNegativeCache(ttl time.Duration) *negativeCache {
	return &negativeCache{
		ttl: ttl, seed: maphash.MakeSeed(), versions: make([]atomic.Uint32, versionRows), misses: map[Key]miss{},
	}
}

// row returns the counter of a key, which other keys share.
func (n *negativeCache) row(k Key) *atomic.Uint32 {
	return &n.versions[maphash.Comparable(n.seed, k)%versionRows]
}

// version returns what add has to be given after a lookup that begins now.
func (n *negativeCache) version(k Key) uint32 { return n.row(k).Load() }

// add remembers the error of a lookup, unless the key was stored since the version.
func (n *negativeCache) add(k Key, version uint32, began time.Time, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	until := began.Add(n.ttl)
	if n.row(k).Load() != version || !time.Now().Before(until) {
		return
	}
	for old := range n.misses {
		if len(n.misses) < maxNegative {
			break
		}
		delete(n.misses, old) // any
	}
	n.misses[k] = miss{err, until}
}

// get returns the error of a lookup in vain, or nil if there was none lately.
func (n *negativeCache) get(k Key) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	found, ok := n.misses[k]
	if !ok {
		return nil
	}
	if !time.Now().Before(found.until) {
		delete(n.misses, k)
		return nil
	}
	return found.err
}

// stored removes the entry of a key that was stored.
func (n *negativeCache) stored(k Key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.row(k).Add(1)
	delete(n.misses, k)
}

// expire removes the entries whose time is over.
func (n *negativeCache) expire(now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for k, found := range n.misses {
		if !now.Before(found.until) {
			delete(n.misses, k)
		}
	}
}

// isPlainMiss reports whether an error means that every level was asked, and none has the object.
func isPlainMiss(err error) bool {
	return errors.Is(err, ErrNotFound) && !errors.Is(err, ErrUnavailable) &&
		!errors.Is(err, ErrCorrupt) && !errors.Is(err, errOrphan)
}
