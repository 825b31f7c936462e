package mmcache

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/serde"
)

// A request that is being sent when Abandon marks it has been sent: before the store is
// abandoned too, its item must not be evictable.
func TestAbandonDuringACommitAborts(t *testing.T) {
	c, err := OpenShared(Options{Capacity: 1 << 16, Shared: SharedOptions{Name: "abandoned", Dir: t.TempDir(), Readers: 1}})
	require.NoError(t, err)
	ctx := context.Background()
	it := &serde.Item{Modality: "image", Elems: []serde.Elem{{Key: "p", Data: &serde.Tensor{DType: "uint8", Shape: []int{8}, Data: make([]byte, 8)}}}}
	r, err := c.Begin(ctx, "r", Want{Key: "a", Bytes: 1000})
	require.NoError(t, err)
	_, err = r.Item(ctx, "a", Ready(it, nil))
	require.NoError(t, err)
	require.NoError(t, r.Commit(ctx, func(Batch) error {
		c.markClosed(errAbandoned) // the first half of Abandon, in another goroutine
		c.mu.Lock()
		ended := r.abandon()
		c.mu.Unlock()
		require.True(t, ended)
		r.leave()
		return nil
	}))
	q := c.Stats().Quarantined
	require.NoError(t, c.store.Abandon())
	require.EqualValues(t, 1, q, "the item was sent, nobody has read it, and it may be evicted")
}
