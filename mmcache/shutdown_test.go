package mmcache_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/mmcache"
)

func requireNothingLeft(t *testing.T) {
	t.Helper()
	left, err := os.ReadDir(segmentDir(t))
	require.NoError(t, err)
	require.Empty(t, left, "in the folder of segments")
}

func requireBalance(t *testing.T, c mmcache.Cache, open int64) {
	t.Helper()
	s := c.Stats()
	require.Equal(t, s.Begun, s.RolledBack+s.Finished+s.Aborted+s.Open)
	require.Equal(t, open, s.Open)
	require.NoError(t, c.CheckStructure())
}

// A cache that is ended with requests open leaves no segment behind.
func TestAbandonLeavesNoSegment(t *testing.T) {
	forEachMode(t, mmcache.Options{Capacity: 1 << 20}, func(t *testing.T, c mmcache.Cache) {
		sentOne, _ := run(t, c, 100, "a")
		fresh := begin(t, c, "b")
		_, err := fresh.Item(ctx, "b", produceItem("b", 100))
		require.NoError(t, err)
		h, held, err := c.Lookup(ctx, "a")
		require.NoError(t, err)
		require.ErrorAs(t, c.Close(), new(*mmcache.BusyError))
		require.NoError(t, c.Abandon())
		if c.Mode() == "shm" {
			requireNothingLeft(t)
		}
		requireBalance(t, c, 0)
		s := c.Stats()
		require.Equal(t, []int64{1, 1, 0}, []int64{s.RolledBack, s.Aborted, s.InFlight})
		require.Empty(t, c.Holders())

		_, err = fresh.Item(ctx, "b", produceItem("b", 100))
		require.ErrorIs(t, err, fs.ErrClosed)
		require.ErrorIs(t, fresh.Commit(ctx, sent), fs.ErrClosed)
		if c.Mode() == "lru" {
			require.ErrorIs(t, sentOne.Missed(ctx, []string{"a"}, sent), fs.ErrClosed)
		}
		fresh.Rollback()
		sentOne.Finish()
		sentOne.Abort()
		if held {
			require.Equal(t, "a", string(h.Item.Updates))
			h.Release()
		}
		_, err = c.Begin(ctx, "late")
		require.ErrorIs(t, err, fs.ErrClosed)
		_, _, err = c.Lookup(ctx, "a")
		require.ErrorIs(t, err, fs.ErrClosed)
		require.ErrorIs(t, c.Clear(ctx, func(lrusync.Envelope) error { return nil }), fs.ErrClosed)
		passFence(c)
		c.Invalidate("a")
		require.Zero(t, c.Stats().Misused)
		require.NoError(t, c.Abandon())
		require.NoError(t, c.Shutdown(ctx))
		if s, ok := c.(*mmcache.Shared); ok {
			require.NoError(t, s.Detach())
		}
	})
}

// A producer that still writes when its cache is abandoned writes to memory that is
// there, and its request learns that the cache is closed.
func TestProducerMayWriteAfterAbandon(t *testing.T) {
	forEachMode(t, mmcache.Options{Capacity: 1 << 20}, func(t *testing.T, c mmcache.Cache) {
		const n = 100 << 10
		laidOut, write := make(chan struct{}), make(chan struct{})
		got := make(chan error)
		r, err := c.Begin(ctx, "r", want(n, "a")...)
		require.NoError(t, err)
		go func() {
			_, err := r.Item(ctx, "a", func(_ context.Context, b *mmcache.Builder) error {
				if err := b.Layout(layout(n), nil); err != nil {
					return err
				}
				close(laidOut)
				<-write
				copy(b.Tensor("pixel_values"), content("a", n))
				return nil
			})
			got <- err
		}()
		<-laidOut
		require.NoError(t, c.Abandon())
		if c.Mode() == "shm" {
			requireNothingLeft(t)
		}
		require.NoError(t, c.Close(), "closing twice is fine, also if something still runs")
		close(write)
		if err := <-got; c.Mode() == "shm" {
			require.ErrorIs(t, err, fs.ErrClosed)
		}
		require.ErrorIs(t, r.Commit(ctx, sent), fs.ErrClosed)
		requireBalance(t, c, 0)
	})
}

// Abandon does not wait for a send that has not returned, and what that send looks
// at stays mapped.
func TestAbandonDuringASend(t *testing.T) {
	for name, failure := range map[string]error{"sent": nil, "failed": errors.New("socket closed")} {
		t.Run(name, func(t *testing.T) {
			forEachMode(t, mmcache.Options{Capacity: 1 << 20}, func(t *testing.T, c mmcache.Cache) {
				r := begin(t, c, "a")
				_, err := r.Item(ctx, "a", produceItem("a", 100))
				require.NoError(t, err)
				require.ErrorIs(t, r.Commit(ctx, func(b mmcache.Batch) error {
					it, err := b.Items[0].Stored()
					require.NoError(t, err)
					require.NoError(t, c.Abandon())
					assertContent(t, "a", it)
					r.Rollback()
					return failure
				}), failure)
				require.ErrorIs(t, r.Commit(ctx, sent), fs.ErrClosed)
				requireBalance(t, c, 0)
				if c.Mode() == "shm" {
					requireNothingLeft(t)
				}
			})
		})
	}
}

// Shutdown waits for what is open, lists it when its context ends, lets it
// go on, and can be called again.
func TestShutdownWaitsForRequests(t *testing.T) {
	for _, m := range modes {
		t.Run(m, func(t *testing.T) {
			bubble(t, mmcache.Options{Mode: m, Capacity: 1 << 20, InFlight: 1000}, func(t *testing.T, c mmcache.Cache) {
				r, err := c.Begin(ctx, "photo-7", want(100, "a")...)
				require.NoError(t, err)
				short, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				err = c.Shutdown(short)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorAs(t, err, new(*mmcache.BusyError))
				require.ErrorContains(t, err, `request "photo-7" (begun for 1s)`)
				_, err = c.Begin(ctx, "late")
				require.ErrorIs(t, err, fs.ErrClosed)

				_, err = r.Item(ctx, "a", produceItem("a", 100))
				require.NoError(t, err, "an open request goes on")
				require.NoError(t, r.Commit(ctx, sent))
				done := make(chan error)
				go func() { done <- c.Shutdown(ctx) }()
				synctest.Wait()
				require.Equal(t, "committed", c.Holders()[0].State)
				r.Finish()
				require.NoError(t, <-done)
				if m == "shm" {
					requireNothingLeft(t)
				}
				requireBalance(t, c, 0)
				require.NoError(t, c.Shutdown(ctx))
				require.NoError(t, c.Abandon())
			})
		})
	}
}

// Who waits is woken by what ends the cache.
func TestWaitersAreWokenByShutdown(t *testing.T) {
	for name, end := range map[string]func(c mmcache.Cache) error{
		"Shutdown": func(c mmcache.Cache) error {
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return c.Shutdown(short)
		},
		"Abandon": (mmcache.Cache).Abandon,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, mmcache.Options{Mode: "shm", Capacity: 1 << 20, InFlight: 1000}, func(t *testing.T, c mmcache.Cache) {
				r, err := c.Begin(ctx, "all", bytesOf("a", 1000))
				require.NoError(t, err)
				got := make(chan error, 3)
				wait := func(f func() error) {
					go func() { got <- f() }()
					synctest.Wait()
				}
				wait(func() error { _, err := c.Begin(ctx, "memory", bytesOf("b", 1)); return err })
				wait(func() error { return c.Clear(ctx, func(lrusync.Envelope) error { return nil }) })
				wait(func() error { _, err := c.Begin(ctx, "gate"); return err })
				require.EqualValues(t, 2, c.Stats().Waiting)
				_ = end(c)
				for range 3 {
					require.ErrorIs(t, <-got, fs.ErrClosed)
				}
				r.Rollback()
				require.NoError(t, c.Shutdown(ctx))
			})
		})
	}
}

// A Shutdown that waits ends when the cache is abandoned, though a producer runs.
func TestAbandonEndsAShutdownThatWaits(t *testing.T) {
	bubble(t, mmcache.Options{Mode: "none"}, func(t *testing.T, c mmcache.Cache) {
		r := begin(t, c, "a")
		goOn := make(chan struct{})
		go func() {
			_, _ = r.Item(ctx, "a", func(ctx context.Context, b *mmcache.Builder) error {
				<-goOn
				return produceItem("a", 100)(ctx, b)
			})
		}()
		done := make(chan error)
		go func() { done <- c.Shutdown(ctx) }()
		synctest.Wait()
		require.NoError(t, c.Abandon())
		require.ErrorIs(t, <-done, fs.ErrClosed)
		close(goOn)
		synctest.Wait()
	})
}

// What blocks Close is named.
func TestBusySaysWhatIsOpen(t *testing.T) {
	c := openCache(t, mmcache.Options{Mode: "processor_only", Capacity: 1 << 20})
	var open []*mmcache.Request
	for range 12 {
		open = append(open, begin(t, c, "a"))
	}
	_, err := open[0].Item(ctx, "a", produceItem("a", 100))
	require.NoError(t, err)
	h, _, err := c.Lookup(ctx, "a")
	require.NoError(t, err)
	err = c.Close()
	require.ErrorContains(t, err, open[0].ID())
	require.ErrorContains(t, err, "and 5 more")
	var busy *mmcache.BusyError
	require.ErrorAs(t, err, &busy)
	require.Len(t, busy.Holders, 13)
	for _, r := range open {
		r.Rollback()
	}
	require.ErrorContains(t, c.Close(), `a hold of item "a"`)
	h.Release()
}

// Finish and Abort before Commit end nothing, and are not silent.
func TestFinishBeforeCommitIsCounted(t *testing.T) {
	c := openCache(t, mmcache.Options{})
	r := begin(t, c, "a")
	r.Finish()
	r.Abort()
	requireBalance(t, c, 1)
	require.EqualValues(t, 2, c.Stats().Misused)
	r.Rollback()
	r.Rollback()
	r.Finish()
	require.EqualValues(t, 2, c.Stats().Misused, "later calls are as they should be")
}

// Who waits for another call that makes the item is woken when the cache is
// abandoned.
func TestItemWaitersAreWokenByAbandon(t *testing.T) {
	bubble(t, mmcache.Options{Mode: "none"}, func(t *testing.T, c mmcache.Cache) {
		maker, follower := begin(t, c, "a"), begin(t, c, "a")
		goOn := make(chan struct{})
		got := make(chan error, 3)
		ask := func(r *mmcache.Request) {
			go func() {
				_, err := r.Item(ctx, "a", func(ctx context.Context, b *mmcache.Builder) error {
					<-goOn
					return produceItem("a", 100)(ctx, b)
				})
				got <- err
			}()
			synctest.Wait()
		}
		ask(maker)
		ask(maker)    // waits for its own first call
		ask(follower) // waits for the maker
		require.NoError(t, c.Abandon())
		require.ErrorIs(t, <-got, fs.ErrClosed)
		require.ErrorIs(t, <-got, fs.ErrClosed)
		close(goOn)
		require.NoError(t, <-got, "what is made is still its maker's")
	})
}
