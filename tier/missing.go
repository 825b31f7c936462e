package tier

import (
	"errors"
	"hash/maphash"
	"sync/atomic"
	"time"
)

const (
	maxMissing  = 1 << 14 // keys
	versionRows = 1 << 12
)

// missing remembers for a short time which keys were looked up in vain. A key that is stored is forgotten, and
// a lookup that began before that leaves no trace. The lock of the store guards it.
type missing struct {
	ttl    time.Duration
	seed   maphash.Seed
	misses map[Key]miss
	// versions count, by a hash of the key, how often such keys were stored. They are read without
	// the lock.
	versions []atomic.Uint32
}

type miss struct {
	err   error
	until time.Time
}

func newMissing(ttl time.Duration) missing {
	return missing{ttl: ttl, seed: maphash.MakeSeed(), misses: map[Key]miss{}, versions: make([]atomic.Uint32, versionRows)}
}

func (m *missing) row(k Key) *atomic.Uint32 {
	return &m.versions[maphash.Comparable(m.seed, k)%versionRows]
}

// version returns what add has to be given after a lookup that begins now.
func (m *missing) version(k Key) uint32 { return m.row(k).Load() }

// add remembers the error of a lookup.
func (m *missing) add(k Key, version uint32, err error) {
	if m.row(k).Load() != version {
		return
	}
	for old := range m.misses {
		if len(m.misses) < maxMissing {
			break
		}
		delete(m.misses, old) // any
	}
	m.misses[k] = miss{err, time.Now().Add(m.ttl)}
}

// get returns the error of a lookup in vain, or nil if there was none lately.
func (m *missing) get(k Key) error {
	found, ok := m.misses[k]
	if !ok {
		return nil
	}
	if !time.Now().Before(found.until) {
		delete(m.misses, k)
		return nil
	}
	return found.err
}

// isNowhere reports whether an error is the answer of every level.
func isNowhere(err error) bool {
	return errors.Is(err, ErrNotFound) && !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrCorrupt) && !errors.Is(err, errOrphan)
}

// stored forgets keys that were stored.
func (m *missing) stored(k Key) {
	m.row(k).Add(1)
	delete(m.misses, k)
}

// prune drops what is over.
func (m *missing) prune(now time.Time) {
	for k, found := range m.misses {
		if !now.Before(found.until) {
			delete(m.misses, k)
		}
	}
}
