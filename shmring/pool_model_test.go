package shmring

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// model is the pool as a list of who owns each granule.
func TestPoolAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		offset := rapid.SampledFrom([]int{0, 32}).Draw(t, "offset")
		size := rapid.IntRange(64, 6000).Draw(t, "size")
		m := make([]byte, size)
		p := NewPool(m, PoolOptions{DataOffset: offset})
		type chunk struct {
			address uint64
			n       int
			fill    byte
		}
		live := map[uint32]chunk{}
		check := func() {
			require.NoError(t, p.CheckStructure())
			require.Equal(t, len(live), p.Len())
			for id, c := range live {
				for _, b := range p.payload(p.live[id]) {
					require.Equal(t, c.fill, b, "chunk %d was overwritten", id)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"alloc": func(t *rapid.T) {
				n := rapid.IntRange(1, size).Draw(t, "n")
				address, id, payload, err := p.Alloc(n)
				if err != nil {
					require.True(t, p.Largest() < p.opt.extent(n), "refused %d bytes with a hole of %d", n, p.Largest())
					return
				}
				fill := byte(id*7 + 1)
				for i := range payload {
					payload[i] = fill
				}
				p.Publish(id)
				live[id] = chunk{address, n, fill}
			},
			"free": func(t *rapid.T) {
				if len(live) == 0 {
					return
				}
				var ids []uint32
				for id := range live {
					ids = append(ids, id)
				}
				slices.Sort(ids)
				id := rapid.SampledFrom(ids).Draw(t, "id")
				p.Free(id)
				delete(live, id)
			},
			"restore": func(t *rapid.T) {
				var placed []Chunk
				for id, c := range live {
					placed = append(placed, Chunk{Address: c.address, ID: id, Size: c.n + HeaderSize})
				}
				q := NewPool(m, PoolOptions{DataOffset: offset})
				require.Len(t, q.Restore(placed, p.NextID()), len(placed))
				require.Equal(t, p.NextID(), q.NextID())
				p = q
			},
			"": func(*rapid.T) { check() },
		})
	})
}
