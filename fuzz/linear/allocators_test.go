package linear_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/ringcache/ringcache/fuzz/linear"
	"github.com/ringcache/ringcache/shmring"
)

// TestAllocatorsAreLinearizable: a pool under a lock, as the stores use it.
func TestAllocatorsAreLinearizable(t *testing.T) {
	const size, first = 4096, shmring.IDLimit - 100 // ids start over in most histories
	model := linear.Allocator(linear.AllocatorOptions{Size: size, FirstID: first})
	for _, s := range []system{
		{"pool", []porcupine.Model{model}, func(*scope) (func(int) perform, func()) {
			p := &lockedPool{pool: shmring.NewPool(make([]byte, size), shmring.PoolOptions{FirstID: first})}
			return func(int) perform { return p.perform }, func() {}
		}},
	} {
		t.Run(s.name, func(t *testing.T) { s.test(t) })
	}
}

type lockedPool struct {
	mu   sync.Mutex
	pool *shmring.Pool
	live []uint32
}

func (p *lockedPool) perform(rng *rand.Rand, do func(any, func() (any, error)) error) error {
	if rng.IntN(2) == 0 {
		n := 1 + rng.IntN(600)
		return do(linear.AllocatorCall{Size: int(p.pool.Extent(n))}, func() (any, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			address, id, _, err := p.pool.Alloc(n)
			if errors.Is(err, shmring.ErrFull) {
				return linear.AllocatorResult{Full: true}, nil
			}
			p.live = append(p.live, id)
			return linear.AllocatorResult{ID: id, Address: address}, err
		})
	}
	p.mu.Lock()
	id := uint32(rng.IntN(100)) // mostly of no chunk
	if len(p.live) > 0 {
		id = p.live[rng.IntN(len(p.live))]
	}
	p.mu.Unlock()
	return do(linear.AllocatorCall{ID: id}, func() (any, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		i := slices.Index(p.live, id) // another may have freed it
		p.pool.Free(id)
		if i < 0 {
			return linear.AllocatorResult{}, nil
		}
		p.live = slices.Delete(p.live, i, i+1)
		return linear.AllocatorResult{Freed: true}, nil
	})
}
