package mmcache_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/mmcache"
)

// Requests that wait for one item wait for the request that makes it. If that one is cancelled, another makes the item.
func TestCancelOfOneRequestEndsNoOther(t *testing.T) {
	bubble(t, mmcache.Options{Mode: "processor_only", Capacity: 1 << 20}, func(t *testing.T, c mmcache.Cache) {
		begin := func(id string) *mmcache.Request {
			r, err := c.Begin(ctx, id, mmcache.Want{Key: "k", Bytes: 200})
			require.NoError(t, err)
			return r
		}
		leader, other := begin("leader"), begin("other")
		cancelled, cancel := context.WithCancel(ctx)
		ofLeader, ofOther := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := leader.Item(cancelled, "k", func(ctx context.Context, _ *mmcache.Builder) error { <-ctx.Done(); return ctx.Err() })
			ofLeader <- err
		}()
		synctest.Wait()
		go func() {
			_, err := other.Item(ctx, "k", produceItem("k", 100))
			ofOther <- err
		}()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-ofLeader, context.Canceled)
		require.NoError(t, <-ofOther)
		leader.Rollback()
		other.Rollback()
	})
}
