package mmcache

import (
	"context"
	"encoding/binary"
	"hash/maphash"
	"math"
	"sync"

	"github.com/ringcache/ringcache/serde"
)

// contents remembers what was made under each key (Options.VerifyHits).
type contents struct {
	seed maphash.Seed

	mu   sync.Mutex
	sums map[string]uint64
}

func newContents() *contents {
	return &contents{seed: maphash.MakeSeed(), sums: map[string]uint64{}}
}

// mostContents bounds the keys that are remembered.
const mostContents = 1 << 16

// changed remembers what a key means, and reports whether it meant something else.
func (c *contents) changed(key string, sum uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, ok := c.sums[key]
	if !ok && len(c.sums) >= mostContents {
		for other := range c.sums { // any
			delete(c.sums, other)
			break
		}
	}
	c.sums[key] = sum
	return ok && old != sum
}

// sum returns a sum of the tensors and prompt updates that a producer has made.
func (b *Builder) sum(seed maphash.Seed) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	part := func(p []byte) {
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(p))))
		_, _ = h.Write(p)
	}
	part(b.updates)
	for _, e := range b.item.Elems {
		t, ok := e.Data.(*serde.Tensor)
		if !ok {
			continue
		}
		part([]byte(e.Key))
		part([]byte(t.DType))
		for _, n := range t.Shape {
			part(binary.LittleEndian.AppendUint64(nil, uint64(n)))
		}
		part(b.Tensor(e.Key))
	}
	return h.Sum64()
}

// verify compares what was made with what its key meant before.
func (c *cache) verify(b *Builder) {
	if c.made.changed(b.wanted.key, b.sum(c.made.seed)) {
		c.count(func(st *Stats) { st.Changed++ })
		c.o.Logger.Warn("an item has another content than was made under its key before; the key must change with the content", "key", b.wanted.key)
	}
}

// verifyHit makes an item that is cached, only to compare it.
func (c *cache) verifyHit(ctx context.Context, w *wanted) {
	if w.produce == nil || w.verified {
		return
	}
	w.verified = true
	b := &Builder{
		tx: &transaction{transactor: producing{}}, wanted: &wanted{key: w.key, charge: math.MaxInt64},
		python: c.o.Python,
	}
	if err := b.produce(ctx, w.produce); err == nil {
		c.verify(b)
	}
}
