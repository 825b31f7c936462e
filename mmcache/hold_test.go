package mmcache_test

import (
	"context"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/objstore"
)

// held returns a hold of an item that no request has.
func held(t *testing.T, c mmcache.Cache, key string) *mmcache.Hold {
	t.Helper()
	r, _ := run(t, c, 100, key)
	r.Finish()
	h, ok, err := c.Lookup(ctx, key)
	require.NoError(t, err)
	require.True(t, ok)
	return h
}

// A Clear that comes between the look and the request waits for both, and the request
// of the hold for nothing.
func TestHoldBeginsBeforeAClearThatWaits(t *testing.T) {
	for _, m := range []string{"processor_only", "shm"} {
		t.Run(m, func(t *testing.T) {
			bubble(t, mmcache.Options{Mode: m, Capacity: 1 << 20}, func(t *testing.T, c mmcache.Cache) {
				h := held(t, c, "a")
				cleared := make(chan error, 1)
				go func() { cleared <- c.Clear(ctx, func(lrusync.Envelope) error { return nil }) }()
				synctest.Wait()
				short, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				_, err := c.Begin(short, "other", want(100, "a")...)
				var waited *mmcache.WaitError
				require.ErrorAs(t, err, &waited)
				require.Equal(t, "clear", waited.For, "any other request waits for the Clear")

				r, err := h.Begin(ctx, "r", want(100, "a")...)
				require.NoError(t, err)
				require.Equal(t, []string{"begun"}, statesOf(c), "the hold has ended")
				h.Release()
				it, err := r.Item(ctx, "a", mustNotProduce(t))
				require.NoError(t, err)
				require.True(t, it.Hit)
				require.NoError(t, r.Commit(ctx, sent))
				synctest.Wait()
				require.Empty(t, cleared, "the request is open")
				r.Finish()
				require.NoError(t, <-cleared)
				require.Zero(t, c.Stats().CachedItems)
			})
		})
	}
}

func statesOf(c mmcache.Cache) (states []string) {
	for _, h := range c.Holders() {
		states = append(states, h.State)
	}
	return states
}

// Whatever comes of its request, a hold that began one has ended, and blocks nothing.
func TestHoldEndsWithItsBegin(t *testing.T) {
	for name, test := range map[string]struct {
		before func(t *testing.T, c mmcache.Cache, h *mmcache.Hold)
		wants  []mmcache.Want
		want   error // nil: a TooLargeError
		text   string
	}{
		"no key":    {nil, []mmcache.Want{{}}, fs.ErrInvalid, "without a Key"},
		"too large": {nil, want(5000, "b"), nil, "Options.InFlight is 1000"},
		"id taken": {func(t *testing.T, c mmcache.Cache, _ *mmcache.Hold) {
			r, err := c.Begin(ctx, "r")
			require.NoError(t, err)
			t.Cleanup(r.Rollback)
		}, nil, fs.ErrInvalid, `request "r" is open already`},
		"released": {func(_ *testing.T, _ mmcache.Cache, h *mmcache.Hold) { h.Release() }, nil, fs.ErrInvalid, `the hold of item "a" has ended`},
		"shutting down": {func(t *testing.T, c mmcache.Cache, _ *mmcache.Hold) {
			over, cancel := context.WithCancel(ctx)
			cancel()
			require.ErrorAs(t, c.Shutdown(over), new(*mmcache.BusyError))
		}, nil, fs.ErrClosed, `request "r" can't begin`},
		"abandoned": {func(t *testing.T, c mmcache.Cache, _ *mmcache.Hold) { require.NoError(t, c.Abandon()) }, nil, fs.ErrInvalid, "has ended"},
	} {
		for _, m := range []string{"processor_only", "lru", "shm"} {
			t.Run(name+"/"+m, func(t *testing.T) {
				c := openCache(t, mmcache.Options{Mode: m, Capacity: 1 << 20, InFlight: 1000})
				h := held(t, c, "a")
				if test.before != nil {
					test.before(t, c, h)
				}
				_, err := h.Begin(ctx, "r", test.wants...)
				if test.want != nil {
					require.ErrorIs(t, err, test.want)
				} else {
					require.ErrorAs(t, err, new(*mmcache.TooLargeError))
				}
				require.ErrorContains(t, err, test.text)
				_, err = h.Begin(ctx, "again", test.wants...)
				require.ErrorIs(t, err, fs.ErrInvalid)
				require.ErrorContains(t, err, "has ended")
				require.Zero(t, c.Stats().Holds)
				h.Release()
			})
		}
	}
}

// The request of a hold waits for memory as any other, and has what was held when it
// comes.
func TestHoldBeginWaitsForMemory(t *testing.T) {
	for _, m := range []string{"processor_only", "shm"} {
		t.Run(m, func(t *testing.T) {
			bubble(t, mmcache.Options{Mode: m, Capacity: 1 << 20, InFlight: 1000}, func(t *testing.T, c mmcache.Cache) {
				h := held(t, c, "a")
				all, err := c.Begin(ctx, "all", bytesOf("b", 1000))
				require.NoError(t, err)
				short, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				_, err = h.Begin(short, "r", append(want(100, "a"), bytesOf("c", 1))...)
				var waited *mmcache.WaitError
				require.ErrorAs(t, err, &waited)
				require.Equal(t, "memory", waited.For)

				h, ok, err := c.Lookup(ctx, "a")
				require.NoError(t, err)
				require.True(t, ok)
				begun := make(chan *mmcache.Request, 1)
				go func() {
					r, _ := h.Begin(ctx, "r", append(want(100, "a"), bytesOf("c", 1))...)
					begun <- r
				}()
				synctest.Wait()
				c.Invalidate("a") // which those who have it keep
				all.Rollback()
				r := <-begun
				require.NotNil(t, r)
				it, err := r.Item(ctx, "a", mustNotProduce(t))
				require.NoError(t, err)
				require.True(t, it.Hit)
				r.Rollback()
			})
		})
	}
}

// Between a look and the use nothing is evicted.
func TestHoldKeepsWhatWasLookedUp(t *testing.T) {
	for _, m := range []string{"processor_only", "shm"} {
		t.Run(m, func(t *testing.T) {
			c := openCache(t, mmcache.Options{Mode: m, Capacity: 1500, Shared: mmcache.SharedOptions{MaxObject: 1400}})
			_, ok, err := c.Lookup(ctx, "a")
			require.NoError(t, err)
			require.False(t, ok)
			r, err := c.Begin(ctx, "r", want(700, "a")...)
			require.NoError(t, err)
			_, err = r.Item(ctx, "a", produceItem("a", 700))
			require.NoError(t, err)
			h, ok, err := c.Lookup(ctx, "a")
			require.NoError(t, err)
			require.True(t, ok)
			r.Rollback()
			require.Equal(t, "a", string(h.Item.Updates))
			require.EqualValues(t, 700, h.Item.Size)
			other, err := c.Begin(ctx, "other", want(1200, "b")...)
			require.NoError(t, err)
			it, err := other.Item(ctx, "b", produceItem("b", 1200))
			require.NoError(t, err)
			require.ErrorIs(t, it.Refused, objstore.ErrFull)
			other.Rollback()
			require.ErrorAs(t, c.Close(), new(*mmcache.BusyError))
			use, err := c.Begin(ctx, "use", want(700, "a")...)
			require.NoError(t, err)
			h.Release()
			h.Release()
			it, err = use.Item(ctx, "a", mustNotProduce(t))
			require.NoError(t, err)
			require.True(t, it.Hit)
			use.Rollback()
		})
	}
}
