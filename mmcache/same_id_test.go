package mmcache_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/mmcache"
)

// An id is free again once its request has ended, also while an item of that request is
// still being made; what the producer does then is of no use to the new request.
func TestIDIsFreeWhileAnItemIsStillMade(t *testing.T) {
	forEachMode(t, mmcache.Options{Capacity: 1 << 16}, func(t *testing.T, c mmcache.Cache) {
		old, err := c.Begin(ctx, "r", want(100, "a")...)
		require.NoError(t, err)
		making, finish, made := make(chan struct{}), make(chan struct{}), make(chan error)
		go func() {
			_, err := old.Item(ctx, "a", func(ctx context.Context, b *mmcache.Builder) error {
				close(making)
				<-finish
				return produceItem("a", 100)(ctx, b)
			})
			made <- err
		}()
		<-making
		old.Rollback()
		for range 3 { // the store has a request of the id until the producer returns
			r, err := c.Begin(ctx, "r", want(100, "b")...)
			require.NoError(t, err)
			_, err = r.Item(ctx, "b", produceItem("b", 100))
			require.NoError(t, err)
			require.NoError(t, r.Commit(ctx, sent))
			r.Finish()
		}
		close(finish)
		require.NoError(t, <-made)
		_, err = old.Item(ctx, "a", mustNotProduce(t))
		require.ErrorIs(t, err, mmcache.ErrEnded)
		require.ErrorIs(t, old.Commit(ctx, sent), mmcache.ErrEnded)
	})
}

// Any number of holds may have one item, and a request the id that a hold has in the store.
func TestHoldsOfOneItem(t *testing.T) {
	c := openShared(t, mmcache.Options{Capacity: 1 << 16})
	first, _ := run(t, c, 100, "a")
	first.Finish()
	var holds []*mmcache.Hold
	for range 3 {
		h, ok, err := c.Lookup(ctx, "a")
		require.NoError(t, err)
		require.True(t, ok)
		holds = append(holds, h)
	}
	r, err := c.Begin(ctx, "hold of a", want(100, "a")...)
	require.NoError(t, err)
	r.Rollback()
	for _, h := range holds {
		h.Release()
	}
}
