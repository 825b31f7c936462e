package mmcache_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/serde"
)

// What a Wire returns is what is sent: the address item, or its encoding, and no encoding of
// an item that is sent itself.
func TestWireEncodesWhatIsSent(t *testing.T) {
	forEachMode(t, mmcache.Options{Capacity: 1 << 16}, func(t *testing.T, c mmcache.Cache) {
		r, b := run(t, c, 100, "a")
		defer r.Finish()
		w := b.Items[0]
		doc, err := w.AppendAddress([]byte("before"))
		if w.Handle == nil {
			requireInvalid(t, err, `item "a" is sent without an address`)
			require.Equal(t, "before", string(doc))
			return
		}
		require.NoError(t, err)
		plan, err := serde.NewPlan(w.Item(), serde.Options{})
		require.NoError(t, err)
		require.Len(t, plan.Frames(), 1)
		require.Equal(t, "before"+string(plan.Frames()[0]), string(doc))
	})
}

// A batch that was kept, of a send that failed, is not written to by the next Commit.
func TestBatchOfAFailedSendStays(t *testing.T) {
	forEachMode(t, mmcache.Options{Capacity: 1 << 16}, func(t *testing.T, c mmcache.Cache) {
		r, err := c.Begin(ctx, "r", want(100, "a")...)
		require.NoError(t, err)
		_, err = r.Item(ctx, "a", produceItem("a", 100))
		require.NoError(t, err)
		var kept, again mmcache.Batch
		require.ErrorIs(t, r.Commit(ctx, func(b mmcache.Batch) error { kept = b; return context.Canceled }), context.Canceled)
		require.NoError(t, r.Commit(ctx, func(b mmcache.Batch) error { again = b; return nil }))
		require.NotSame(t, &kept.Items[0], &again.Items[0])
		require.Equal(t, kept.Items, again.Items)
		r.Finish()
	})
}
