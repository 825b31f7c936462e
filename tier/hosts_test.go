package tier_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
)

// TestAMissIsRememberedFromItsLookUp: what a batch looked up in vain was remembered from the end of the batch, however
// long the rest of it took. Another host may have stored it long before.
func TestAMissIsRememberedFromItsLookUp(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		require.NoError(t, put(b.maps[1], "slow", "", 10))
		wait := make(chan struct{})
		b.remote.Do(func(c tiertest.Call) tiertest.Answer {
			if is(c, "Get") && c.Key == key("slow") {
				return tiertest.Answer{Wait: wait}
			}
			return tiertest.Answer{}
		})
		b.lease("l").Pin(keys("slow"))
		synctest.Wait()
		var work sync.WaitGroup
		gets := []tier.Get{{Key: key("x")}, {Key: key("slow")}}
		work.Go(func() { b.Get(context.Background(), gets) })
		synctest.Wait()
		time.Sleep(time.Second)
		require.NoError(t, put(b.maps[1], "x", "", 10), "another host")
		time.Sleep(4 * time.Second)
		close(wait)
		work.Wait()
		require.ErrorIs(t, gets[0].Err, tier.ErrNotFound)
		require.NoError(t, gets[1].Err)
		require.NoError(t, b.get("x"), "it was there for four seconds")
	})
}

// TestStatRemembersMisses: a client that asks again and again whether an object is there does not ask a shared level each
// time.
func TestStatRemembersMisses(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		for range 100 {
			require.ErrorIs(t, b.Stat(t.Context(), keys("x"))[0].Err, tier.ErrNotFound)
			require.ErrorIs(t, b.get("x"), tier.ErrNotFound)
		}
		require.Equal(t, 1, b.remote.Elements("Stat"))
		require.Zero(t, b.remote.Elements("Get"))
		require.NoError(t, put(b.maps[1], "x", "", 10), "another host")
		time.Sleep(time.Second)
		require.NoError(t, b.Stat(t.Context(), keys("x"))[0].Err)

		require.ErrorIs(t, b.Stat(t.Context(), keys("y"))[0].Err, tier.ErrNotFound)
		require.NoError(t, put(b, "y", "", 10))
		_, err := b.Drain(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"memory", "disk", "remote"}, b.Stat(t.Context(), keys("y"))[0].Levels, "it was stored here")
	})
}
