package mmcache_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/mmcache"
)

// bubble runs a test in a synctest bubble with a cache that is validated and
// closed at its end.
func bubble(t *testing.T, o mmcache.Options, f func(t *testing.T, c *mmcache.Cache)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, openCache(t, o)) })
}

// bytesOf is a want of a key that may take n bytes.
func bytesOf(key string, n int64) mmcache.Want {
	return mmcache.Want{Key: key, Bytes: n, Modality: "image"}
}

// A Begin that ends with its context has got nothing, so it gives nothing back,
// also if one of its items was cached meanwhile.
func TestBeginThatGivesUpReturnsNoBudget(t *testing.T) {
	for _, m := range []mmcache.Mode{mmcache.ProcessorOnly, mmcache.SHM} {
		t.Run(m.String(), func(t *testing.T) {
			o := mmcache.Options{Mode: m, Capacity: 1 << 20, MaxObject: 64 << 10, InFlight: 100 << 10, MaxItem: 64 << 10}
			bubble(t, o, func(t *testing.T, c *mmcache.Cache) {
				first, err := c.Begin(ctx, "first", bytesOf("k1", 60<<10), bytesOf("k2", 40<<10))
				require.NoError(t, err)
				short, cancel := context.WithCancel(ctx)
				gaveUp := make(chan error)
				go func() {
					_, err := c.Begin(short, "second", bytesOf("k2", 40<<10), bytesOf("k3", 50<<10))
					gaveUp <- err
				}()
				synctest.Wait()
				_, err = first.Item(ctx, "k2", produceItem("k2", 30000))
				require.NoError(t, err)
				cancel()
				require.ErrorIs(t, <-gaveUp, context.Canceled)
				require.EqualValues(t, 60<<10, c.Stats().InFlight, "what the first request still holds")
				require.NotPanics(t, first.Rollback)
				require.Zero(t, c.Stats().InFlight)
			})
		})
	}
}

// A request for what is cached needs no memory, so it never waits for any.
func TestHitDoesNotWaitForMemory(t *testing.T) {
	o := mmcache.Options{Mode: mmcache.ProcessorOnly, Capacity: 1 << 20, InFlight: 1000}
	bubble(t, o, func(t *testing.T, c *mmcache.Cache) {
		warm, _ := run(t, c, 100, "warm")
		warm.Finish()
		all, err := c.Begin(ctx, "all", bytesOf("all", 1000))
		require.NoError(t, err)
		go func() {
			r, err := c.Begin(ctx, "waits", bytesOf("waits", 500))
			if err == nil {
				r.Rollback()
			}
		}()
		synctest.Wait()
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		hit, err := c.Begin(short, "hit", bytesOf("warm", 200))
		if err == nil {
			hit.Rollback()
		}
		all.Rollback()
		synctest.Wait()
		require.NoError(t, err)
	})
}

// A small request passes a large one that waits, where there is room for it.
func TestSmallRequestPassesALargeOne(t *testing.T) {
	o := mmcache.Options{Mode: mmcache.None, InFlight: 1000}
	bubble(t, o, func(t *testing.T, c *mmcache.Cache) {
		first, err := c.Begin(ctx, "first", bytesOf("a", 800))
		require.NoError(t, err)
		begun := make(chan *mmcache.Request, 1)
		go func() {
			r, _ := c.Begin(ctx, "large", bytesOf("b", 800))
			begun <- r
		}()
		synctest.Wait()
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		small, err := c.Begin(short, "small", bytesOf("c", 100))
		if err == nil {
			small.Rollback()
		}
		first.Rollback()
		(<-begun).Rollback()
		require.NoError(t, err)
	})
}
