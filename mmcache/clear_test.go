package mmcache_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/mmcache"
)

func nothing(lrusync.Envelope) error { return nil }

// Clear is a barrier: it waits for what began before, and what begins after it
// waits for it.
func TestClearIsABarrier(t *testing.T) {
	for _, m := range []string{"none", "processor_only", "shm"} {
		t.Run(m, func(t *testing.T) {
			bubble(t, mmcache.Options{Mode: m, Capacity: 1 << 20}, func(t *testing.T, c mmcache.Cache) {
				r, _ := run(t, c, 100, "a")
				short, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				err := c.Clear(short, func(lrusync.Envelope) error { t.Error("cleared the engine"); return nil })
				require.ErrorIs(t, err, context.DeadlineExceeded)
				var busy *mmcache.BusyError
				require.ErrorAs(t, err, &busy)
				require.Equal(t, r.ID(), busy.Holders[0].ID)
				short, cancel = context.WithTimeout(ctx, time.Second)
				defer cancel()
				other, err := c.Begin(short, "other", want(100, "b")...)
				require.NoError(t, err, "a Clear that gave up blocks nobody")
				other.Rollback()

				cleared := make(chan error)
				go func() { cleared <- c.Clear(ctx, nothing) }()
				synctest.Wait()
				begun := make(chan *mmcache.Request)
				go func() {
					r, err := c.Begin(ctx, "late", want(100, "a")...)
					assert.NoError(t, err)
					begun <- r
				}()
				synctest.Wait()
				select {
				case <-cleared:
					t.Error("cleared under an open request")
				case <-begun:
					t.Error("a request overtook the barrier")
				default:
				}
				r.Finish()
				require.NoError(t, <-cleared)
				late := <-begun
				require.NotNil(t, late)
				it, err := late.Item(ctx, "a", produceItem("a", 100))
				require.NoError(t, err)
				require.False(t, it.Hit)
				late.Rollback()
				require.EqualValues(t, 1, c.Stats().Epoch)
			})
		})
	}
}

// Clear forgets every item, in the cache and at the engine, unless the engine can't be
// cleared: then nothing is forgotten.
func TestClear(t *testing.T) {
	forEachMode(t, mmcache.Options{Capacity: 4096, Shared: mmcache.SharedOptions{MaxObject: 2048}}, func(t *testing.T, c mmcache.Cache) {
		caches := c.Mode() != "none"
		// ask makes a request, and reports how often its item had to be made for it.
		ask := func() (made int64) {
			before := c.Stats().Produced
			r, _ := run(t, c, 100, "a")
			r.Finish()
			return c.Stats().Produced - before
		}
		events, stop := c.Subscribe(100)
		defer stop()
		require.EqualValues(t, 1, ask())
		broken := errors.New("no engine")
		require.ErrorIs(t, c.Clear(ctx, func(lrusync.Envelope) error { return broken }), broken)
		s := c.Stats()
		require.Zero(t, s.Epoch)
		require.Equal(t, caches, s.CachedItems == 1)
		require.Equal(t, caches, ask() == 0, "nothing was forgotten")
		require.EqualValues(t, 2, c.Stats().Total)

		engine := 0
		require.NoError(t, c.Clear(ctx, func(lrusync.Envelope) error {
			engine++
			require.Equal(t, caches, c.Stats().CachedItems == 1, "nothing is forgotten before the engine is cleared")
			return nil
		}))
		require.Equal(t, 1, engine)
		s = c.Stats()
		require.Equal(t, []int64{0, 0, 0, 0}, []int64{s.Hits, s.Total, s.CachedItems, s.CachedBytes})
		require.EqualValues(t, 1, s.Epoch)
		for range c.Keys() {
			t.Error("a key is left")
		}
		require.EqualValues(t, 1, ask(), "a was forgotten")

		known, clears := map[string]bool{}, 0
		for len(events) > 0 {
			switch ev := <-events; ev.Kind {
			case "cleared":
				clears++
				require.EqualValues(t, 1, ev.Epoch)
				clear(known)
			case "added":
				known[ev.Key] = true
			case "evicted":
				delete(known, ev.Key)
			}
		}
		require.Equal(t, 1, clears)
		require.Equal(t, caches, known["a"])
	})
}
