package shmring

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Cheapest is compared with trying every run.
func TestPoolCheapestIsTheCheapest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = 12
		p := NewPool(make([]byte, n*granule), PoolOptions{})
		var ids []uint32
		for used := 0; used < n; {
			g := rapid.IntRange(1, min(3, n-used)).Draw(t, "granules")
			_, id, _, err := p.Alloc(g*granule - HeaderSize)
			require.NoError(t, err)
			ids = append(ids, id)
			used += g
		}
		costs := map[uint32]float64{}
		for _, id := range ids {
			switch rapid.IntRange(0, 3).Draw(t, "fate") {
			case 0:
				p.Free(id)
			case 1: // may not be freed
			default:
				costs[id] = float64(rapid.IntRange(0, 20).Draw(t, "cost"))
			}
		}
		cost := func(id uint32, _ any) (float64, bool) { c, ok := costs[id]; return c, ok }
		need := rapid.IntRange(1, 8).Draw(t, "need")*granule - HeaderSize

		var blocks []*block
		for b := p.first; b != nil; b = b.next {
			blocks = append(blocks, b)
		}
		best := -1.0
		for i := range blocks {
			sum, length := 0.0, uint64(0)
			for _, b := range blocks[i:] {
				c, ok := 0.0, true
				if !b.free() {
					c, ok = cost(b.id, nil)
				}
				if !ok {
					break
				}
				sum, length = sum+c, length+b.len
				if length >= p.opt.extent(need) {
					if best < 0 || sum < best {
						best = sum
					}
					break
				}
			}
		}
		got, ok := p.Cheapest(nil, need, cost)
		require.Equal(t, best >= 0, ok)
		if !ok {
			return
		}
		sum := 0.0
		for _, id := range got {
			sum += costs[id]
			p.Free(id)
		}
		require.Equal(t, best, sum)
		_, _, _, err := p.Alloc(need)
		require.NoError(t, err, "the run makes room")
		require.NoError(t, p.CheckStructure())
	})
}

// Of a large pool a search looks at a part, and still finds what there is.
func TestPoolCheapestFindsTheOnlyRunOfALargePool(t *testing.T) {
	const n = 3*minWalk + 5
	p, _ := newPool(t, n*granule, 0)
	for range n {
		_, _, _, err := p.Alloc(1)
		require.NoError(t, err)
	}
	for _, only := range []uint32{0, 77, n/2 - 1, n - 2, 5} {
		ids, ok := p.Cheapest(nil, 2*granule-HeaderSize, func(id uint32, _ any) (float64, bool) { return 1, id == only || id == only+1 })
		require.True(t, ok, only)
		require.Equal(t, []uint32{only, only + 1}, ids)
	}
	_, ok := p.Cheapest(nil, 1, func(uint32, any) (float64, bool) { return 0, false })
	require.False(t, ok)
	seen := map[uint32]bool{}
	for range 8 {
		ids, ok := p.Cheapest(nil, 1, func(id uint32, _ any) (float64, bool) { return float64(n - id), true })
		require.True(t, ok)
		seen[ids[0]/minWalk] = true
	}
	require.Greater(t, len(seen), 2, "the searches go round")
}
