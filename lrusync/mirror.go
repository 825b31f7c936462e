package lrusync

import (
	"fmt"
	"math"

	"github.com/ringcache/ringcache/pycompat"
)

// Options say what cache to make. Both ends of a pair must have the same.
type Options struct {
	// Capacity in bytes, by vLLM's size rules ([ItemSize]). It may have a
	// fraction: vLLM takes mm_processor_cache_gb times 2^30 as a float, see
	// [CapacityGB].
	Capacity float64
	// Generation of the vLLM on the other end; nil is the newest known.
	Generation *pycompat.Generation
}

// Validate reports what is wrong with the options.
func (o Options) Validate() error {
	_, err := o.resolve()
	return err
}

// resolve returns the generation, if the options are valid.
func (o Options) resolve() (*pycompat.Generation, error) {
	if math.IsNaN(o.Capacity) || o.Capacity < 0 || o.Capacity > math.MaxInt64/2 {
		return nil, fmt.Errorf("%w: capacity of %v bytes", ErrInvalid, o.Capacity)
	}
	return pycompat.Resolve(o.Generation)
}

// CapacityGB returns the capacity that vLLM gives its LRU caches for a value of
// mm_processor_cache_gb.
func CapacityGB(gb float64) float64 { return gb * (1 << 30) }

// mirror is an LRU with what a receiver does to it. Sender and Receiver have one
// each and do the same to it, so the two stay equal.
type mirror[V any] struct {
	*LRU[V]
	gen    *pycompat.Generation
	digest uint64 // of everything that happened to contents and order
}

func newMirror[V any](o Options) (*mirror[V], error) {
	g, err := o.resolve()
	if err != nil {
		return nil, err
	}
	m := &mirror[V]{LRU: NewLRU(o.Capacity, LRUOptions[V]{}), gen: g, digest: emptyDigest}
	m.trace = func(c change, key string, size int64) { m.digest = fold(m.digest, c, key, size) }
	return m, nil
}

// touchAll is the first half of a receiver's work on a request.
func (m *mirror[V]) touchAll(n int, key func(int) string, ghosts bool) {
	if !m.gen.Cache.Touch {
		return
	}
	for i := range n {
		if ghosts && m.gen.Cache.GhostTouch {
			m.TouchGhost(key(i))
		} else {
			m.Touch(key(i))
		}
	}
}

// receive is the second half, for one feature that comes with data. It returns
// the value that the model gets.
func (m *mirror[V]) receive(key string, v V, size int64) (V, error) {
	if m.gen.Cache.FreshWins {
		m.Pop(key)
	} else if cached, ok := m.Get(key); ok {
		return cached, nil
	}
	return v, m.insertNew(key, v, size)
}

// insertNew stores a value as the generation does with one that may be larger
// than the cache.
func (m *mirror[V]) insertNew(key string, v V, size int64) error {
	if m.gen.Cache.PutIfFits {
		_, err := m.PutIfFits(key, v, size)
		return err
	}
	return m.Put(key, v, size)
}

// KeySize is an entry of a cache as its peer needs to know it.
type KeySize struct {
	Key  string
	Size int64
}

// contents lists what is held, oldest first.
func (m *mirror[V]) contents() []KeySize {
	out := make([]KeySize, 0, m.Len())
	for k, e := range m.All() {
		out = append(out, KeySize{k, e.Size})
	}
	return out
}

// restart makes the digest one of the contents alone, whatever led to them.
func (m *mirror[V]) restart() {
	m.digest = emptyDigest
	for k, e := range m.All() {
		m.digest = fold(m.digest, changeInsert, k, e.Size)
	}
}

// The digest is FNV-1a, 64 bits. It detects accidents; nobody gains by forging it,
// as a difference that it misses still ends in a miss.
const (
	emptyDigest uint64 = 14695981039346656037
	prime       uint64 = 1099511628211
)

func fold(h uint64, c change, key string, size int64) uint64 {
	h = (h ^ uint64(c)) * prime
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * prime
	}
	for i := range 8 {
		h = (h ^ uint64(byte(size>>(8*i)))) * prime
	}
	return h
}
