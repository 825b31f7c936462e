package mmcache_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/mmcache"
)

// A worker reads an item once for each place that it has in a request, and once for each child of the request.
func TestEachPlaceOfAnItemIsAUse(t *testing.T) {
	c := openShared(t, mmcache.Options{Capacity: 1 << 20})
	want := mmcache.Want{Key: "k", Bytes: 200, Modality: "image"}
	r, err := c.Begin(ctx, "r", want, want, want)
	require.NoError(t, err)
	_, err = r.Item(ctx, "k", produceItem("k", 100))
	require.NoError(t, err)
	require.NoError(t, r.Commit(ctx, func(b mmcache.Batch) error {
		require.Len(t, b.Items, 3)
		return nil
	}))
	st, err := c.State()
	require.NoError(t, err)
	require.Len(t, st.Objects, 1)
	require.EqualValues(t, 3, st.Objects[0].Uses)
	r.Finish()
}
