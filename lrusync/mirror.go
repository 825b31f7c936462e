package lrusync

import (
	"errors"
	"fmt"
	"math"

	"github.com/ringcache/ringcache/internal/lru"
	"github.com/ringcache/ringcache/pycompat"
)

// Options configure a cache. Both ends of a pair must have the same.
type Options struct {
	// Capacity in bytes, by vLLM's size rules ([ItemSize]). It may have a
	// fraction: vLLM takes mm_processor_cache_gb times 2^30 as a float.
	Capacity float64
	// Generation of the vLLM on the other end; nil is the newest known.
	Generation *pycompat.Generation
}

// Validate returns an error that wraps [io/fs.ErrInvalid], or nil.
func (o Options) Validate() error {
	_, err := o.resolve()
	return err
}

// resolve returns the generation, if the options are valid.
func (o Options) resolve() (*pycompat.Generation, error) {
	if math.IsNaN(o.Capacity) || o.Capacity < 0 || o.Capacity > math.MaxInt64/2 {
		return nil, fmt.Errorf("%w: capacity of %v bytes", errInvalid, o.Capacity)
	}
	return pycompat.Resolve(o.Generation)
}

// mirror is an LRU with what a receiver does to it. Sender and Receiver have one
// each and do the same to it, so the two stay equal.
type mirror[V any] struct {
	*lru.Cache[V]
	gen    *pycompat.Generation
	digest uint64 // of everything that happened to contents and order
	start  uint64 // digest when the transaction began
}

func newMirror[V any](o Options) (*mirror[V], error) {
	g, err := o.resolve()
	if err != nil {
		return nil, err
	}
	m := &mirror[V]{gen: g, digest: emptyDigest}
	m.Cache = lru.New(o.Capacity, lru.Options[V]{OnChange: func(c lru.Change, key string, size int64) {
		m.digest = fold(m.digest, c, key, size)
	}})
	return m, nil
}

// receive takes a value that came with a request, and returns the one that the
// model gets: where fresh data does not win, a cached one stays.
func (m *mirror[V]) receive(key string, v V, size int64) (V, error) {
	if m.gen.Cache.FreshWins {
		m.Pop(key)
	} else if cached, ok := m.Get(key); ok {
		return cached, nil
	}
	err := m.Put(key, v, size)
	if m.gen.Cache.PutIfFits && errors.Is(err, ErrTooLarge) {
		err = nil // served without being cached
	}
	return v, err
}

// begin opens a transaction, which Commit or rollback ends.
func (m *mirror[V]) begin() {
	m.Begin()
	m.start = m.digest
}

func (m *mirror[V]) rollback() {
	m.Rollback()
	m.digest = m.start
}

func (m *mirror[V]) stats() Stats {
	hits, queries := m.Stats()
	return Stats{Hits: hits, Total: queries}
}

// contents lists the entries, oldest first.
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
		m.digest = fold(m.digest, lru.Inserted, k, e.Size)
	}
}

// The digest is FNV-1a, 64 bits. It detects accidents; nobody gains by forging it,
// as a difference that it misses still ends in a miss.
const (
	emptyDigest uint64 = 14695981039346656037
	prime       uint64 = 1099511628211
)

func fold(h uint64, c lru.Change, key string, size int64) uint64 {
	h = (h ^ uint64(c)) * prime
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * prime
	}
	for i := range 8 {
		h = (h ^ uint64(byte(size>>(8*i)))) * prime
	}
	return h
}
