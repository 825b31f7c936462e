package mmcache_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/objstore"
)

// The zero values of FIFO and MaxObject are useful ones.
func TestZeroOptionsAreUseful(t *testing.T) {
	c := openShared(t, mmcache.Options{Capacity: 1 << 20})
	st, err := c.State()
	require.NoError(t, err)
	require.Zero(t, st.Ring, "the policy is not FIFO")
	r, b := run(t, c, 500<<10, "large")
	require.Equal(t, inAddress, form(b.Items[0]))
	r.Finish()
}

// An object larger than the cache never fits, so MaxObject may be above Capacity,
// as vLLM's default often is.
func TestMaxObjectAboveCapacity(t *testing.T) {
	for _, fifo := range []bool{false, true} {
		t.Run(fmt.Sprint("FIFO ", fifo), func(t *testing.T) {
			c := openCache(t, mmcache.Options{Mode: "shm", Capacity: 1 << 20, Shared: mmcache.SharedOptions{MaxObject: 128 << 20, FIFO: fifo}})
			r, err := c.Begin(ctx, "r", bytesOf("a", 2<<20))
			require.NoError(t, err)
			it, err := r.Item(ctx, "a", produceItem("a", 1<<20))
			require.NoError(t, err)
			require.ErrorIs(t, it.Refused, objstore.ErrTooLarge)
			r.Rollback()
		})
	}
	o := mmcache.Options{Mode: "shm", Capacity: 1 << 20, Shared: mmcache.SharedOptions{Readers: 1, MaxObject: -1}}
	requireInvalid(t, o.Validate(), "MaxObjectSize -1")
}

// A mode that is spelled wrong is refused with those that there are; none is the default.
func TestModeIsOneOfFour(t *testing.T) {
	_, err := mmcache.Open(mmcache.Options{Mode: "smh"})
	requireInvalid(t, err, `mode "smh": want none, processor_only, lru or shm`)
	requireInvalid(t, mmcache.Options{Mode: "LRU"}.Validate(), `mode "LRU"`)
	require.Equal(t, "none", openCache(t, mmcache.Options{}).Mode())
}

// TestCapacityIsNamedAsTheOption, and not as that of the store below.
func TestCapacityIsNamedAsTheOption(t *testing.T) {
	_, err := mmcache.Open(mmcache.Options{Mode: "shm", Shared: mmcache.SharedOptions{Readers: 1}})
	require.ErrorContains(t, err, "Capacity is 0, and mode shm needs the bytes of the ring")
	require.NotContains(t, err.Error(), "RingSize 0")
}
