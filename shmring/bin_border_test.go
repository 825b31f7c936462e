package shmring

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Holes of about one size are in one list. One that is a granule too small is no place for a chunk.
func TestHoleThatIsAGranuleTooSmall(t *testing.T) {
	for _, granules := range []uint64{32, 63, 64, 100, 128, 1000} {
		size := func(n uint64) int { return int(n*granule) - HeaderSize }
		p := NewPool(make([]byte, (2*granules+1)*granule), PoolOptions{})
		_, first, _, err := p.Alloc(size(granules))
		require.NoError(t, err)
		_, between, _, err := p.Alloc(size(1))
		require.NoError(t, err)
		p.Publish(between)
		p.Free(first)
		_, _, _, err = p.Alloc(size(granules + 1))
		require.ErrorIs(t, err, ErrFull, "%d granules", granules)
		require.NoError(t, p.CheckStructure())
		at, id, _, err := p.Alloc(size(granules))
		require.NoError(t, err)
		require.Zero(t, at)
		p.Publish(id)
		require.NoError(t, p.CheckStructure())
	}
}
