package mmcache_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/mmcache"
)

// bubble runs a test in a synctest bubble with a cache that is validated and
// closed at its end.
func bubble(t *testing.T, o mmcache.Options, f func(t *testing.T, c mmcache.Cache)) {
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
	for _, m := range []string{"processor_only", "shm"} {
		t.Run(m, func(t *testing.T) {
			o := mmcache.Options{Mode: m, Capacity: 1 << 20, InFlight: 100 << 10, MaxItem: 64 << 10, Shared: mmcache.SharedOptions{MaxObject: 64 << 10}}
			bubble(t, o, func(t *testing.T, c mmcache.Cache) {
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
	o := mmcache.Options{Mode: "processor_only", Capacity: 1 << 20, InFlight: 1000}
	bubble(t, o, func(t *testing.T, c mmcache.Cache) {
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
	o := mmcache.Options{Mode: "none", InFlight: 1000}
	bubble(t, o, func(t *testing.T, c mmcache.Cache) {
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

// A large request is passed by as many bytes as Options.InFlight at most, if these
// hold it up; then everybody waits behind it.
func TestLargeRequestDoesNotStarve(t *testing.T) {
	o := mmcache.Options{Mode: "none", InFlight: 1000}
	bubble(t, o, func(t *testing.T, c mmcache.Cache) {
		small := func(i int) (*mmcache.Request, error) {
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return c.Begin(short, nextID(), bytesOf(fmt.Sprint("small", i), 100))
		}
		before, err := small(0)
		require.NoError(t, err)
		begun := make(chan *mmcache.Request, 1)
		go func() {
			r, err := c.Begin(ctx, "large", bytesOf("large", 1000))
			assert.NoError(t, err)
			begun <- r
		}()
		synctest.Wait()
		passed := 0
		for i := 1; ; i++ {
			r, err := small(i)
			require.NoError(t, c.CheckStructure())
			if err != nil {
				var waited *mmcache.WaitError
				require.ErrorAs(t, err, &waited)
				require.Equal(t, 1, waited.Ahead)
				break
			}
			passed++
			require.LessOrEqual(t, passed, 10)
			before.Rollback() // there is always one small request
			before = r
			select {
			case <-begun:
				t.Fatal("begun though there was no room")
			default:
			}
		}
		require.Equal(t, 10, passed)
		before.Rollback()
		(<-begun).Rollback()
	})
}

// Small requests that leave room for the large one may pass it for ever, also once
// those that hold it up may not.
func TestSmallRequestsThatHoldNobodyUpAlwaysPass(t *testing.T) {
	o := mmcache.Options{Mode: "none", InFlight: 1000}
	bubble(t, o, func(t *testing.T, c mmcache.Cache) {
		pass := func(bytes int64) (*mmcache.Request, error) {
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return c.Begin(short, nextID(), bytesOf("small", bytes))
		}
		first, err := pass(500)
		require.NoError(t, err)
		begun := make(chan *mmcache.Request, 1)
		go func() {
			r, err := c.Begin(ctx, "large", bytesOf("large", 800))
			assert.NoError(t, err)
			begun <- r
		}()
		synctest.Wait()
		for range 3 { // of 300 bytes the large one needs 100
			r, err := pass(300)
			require.NoError(t, err)
			r.Rollback()
		}
		_, err = pass(300)
		require.ErrorIs(t, err, context.DeadlineExceeded, "that would be more than InFlight")
		for range 100 { // beside 150 there is room for the large one
			r, err := pass(150)
			require.NoError(t, err)
			require.NoError(t, c.CheckStructure())
			r.Rollback()
		}
		last, err := pass(150)
		require.NoError(t, err)
		first.Rollback()
		(<-begun).Rollback() // begins beside the small one
		last.Rollback()
	})
}

// Who gives up reports what it waited for.
func TestBeginSaysWhatItWaitedFor(t *testing.T) {
	bubble(t, mmcache.Options{Mode: "processor_only", Capacity: 1 << 20, InFlight: 1000}, func(t *testing.T, c mmcache.Cache) {
		var all []*mmcache.Request
		for i := range 2 {
			r, err := c.Begin(ctx, nextID(), bytesOf(fmt.Sprint(i), 450))
			require.NoError(t, err)
			all = append(all, r)
		}
		giveUp := func(f func(ctx context.Context) error) *mmcache.WaitError {
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			err := f(short)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			var waited *mmcache.WaitError
			require.ErrorAs(t, err, &waited)
			return waited
		}
		err := giveUp(func(ctx context.Context) error { _, err := c.Begin(ctx, "r7", bytesOf("b", 200)); return err })
		require.Equal(t, &mmcache.WaitError{
			For: "memory", Request: "r7", Need: 200, InUse: 900, Limit: 1000, Holders: 2, Err: context.DeadlineExceeded,
		}, err)
		require.EqualError(t, err, `mmcache: request "r7" waited for 200 bytes of memory: 2 requests hold 900 bytes of 1000 bytes (Options.InFlight), `+
			"and 0 more wait in front; announce less in Want.Bytes, end requests that are done, or raise InFlight: context deadline exceeded")

		// Another request makes the item.
		goOn := make(chan struct{})
		go func() {
			_, _ = all[0].Item(ctx, "0", func(ctx context.Context, b *mmcache.Builder) error {
				<-goOn
				return produceItem("0", 100)(ctx, b)
			})
		}()
		other, cause := c.Begin(ctx, "other", bytesOf("0", 50))
		require.NoError(t, cause)
		synctest.Wait()
		err = giveUp(func(ctx context.Context) error { _, err := other.Item(ctx, "0", mustNotProduce(t)); return err })
		require.ErrorContains(t, err, `request "other" waited for another call that makes item "0"`)
		close(goOn)
		synctest.Wait()

		// A Clear, which waits itself.
		clearing, stop := context.WithCancel(ctx)
		cleared := make(chan error)
		go func() { cleared <- c.Clear(clearing, func(lrusync.Envelope) error { return nil }) }()
		synctest.Wait()
		err = giveUp(func(ctx context.Context) error { _, err := c.Begin(ctx, "r8"); return err })
		require.ErrorContains(t, err, `request "r8" waited for a Clear`)
		stop()
		cause = <-cleared
		require.ErrorIs(t, cause, context.Canceled)
		require.ErrorContains(t, cause, `request "other"`)
		other.Rollback()
		for _, r := range all {
			r.Rollback()
		}
	})
}
