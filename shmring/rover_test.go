package shmring

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A search goes on where the last one stopped. The chunk there may be gone by then, merged with the hole before it.
func TestSearchGoesOnWhereAChunkWas(t *testing.T) {
	const chunks = 4 * minWalk // more than a search looks at
	p := NewPool(make([]byte, chunks*granule), PoolOptions{})
	live := map[uint32]bool{}
	for range chunks {
		_, id, _, err := p.Alloc(50)
		require.NoError(t, err)
		p.Publish(id)
		live[id] = true
	}
	search := func() []uint32 {
		ids, ok := p.Cheapest(nil, 100, func(id uint32, _ any) (float64, bool) {
			require.True(t, live[id], "chunk %d is gone", id)
			return 1, true
		})
		require.True(t, ok)
		return ids
	}
	search()
	stopped := p.rover
	require.NotNil(t, stopped)
	for _, id := range []uint32{stopped.prev.id, stopped.id} {
		p.Free(id)
		delete(live, id)
	}
	for range 8 { // once around
		for _, id := range search() {
			require.True(t, live[id])
		}
		require.NoError(t, p.CheckStructure())
	}
}
