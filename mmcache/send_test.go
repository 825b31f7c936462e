package mmcache_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/mmcache"
)

// A send that does not return holds up only those that have to send after it.
func TestBlockedSendBlocksNoBegin(t *testing.T) {
	for _, m := range modes {
		t.Run(m, func(t *testing.T) {
			bubble(t, mmcache.Options{Mode: m, Capacity: 1 << 20}, func(t *testing.T, c mmcache.Cache) {
				slow, other := begin(t, c, "a"), begin(t, c, "b")
				for r, key := range map[*mmcache.Request]string{slow: "a", other: "b"} {
					_, err := r.Item(ctx, key, produceItem(key, 100))
					require.NoError(t, err)
				}
				goOn, done := make(chan struct{}), make(chan error)
				go func() {
					done <- slow.Commit(ctx, func(mmcache.Batch) error { <-goOn; return nil })
				}()
				synctest.Wait()
				r := begin(t, c, "c")
				_, err := r.Item(ctx, "c", produceItem("c", 100))
				require.NoError(t, err)
				h, ok, err := c.Lookup(ctx, "a")
				require.NoError(t, err)
				if ok {
					h.Release()
				}
				c.Stats()
				c.Invalidate("c")
				for range c.Keys() {
				}
				require.NoError(t, c.CheckStructure())
				r.Rollback()

				short, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				err = other.Commit(short, sent)
				if m == "lru" {
					require.ErrorIs(t, err, context.DeadlineExceeded)
					var waited *mmcache.WaitError
					require.ErrorAs(t, err, &waited)
					require.Equal(t, "send", waited.For)
					require.ErrorContains(t, err, "send of another request")
					err = c.Clear(short, func(lrusync.Envelope) error { return nil })
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.ErrorAs(t, err, &waited)
					other.Rollback()
				} else {
					require.NoError(t, err)
					other.Finish()
				}
				close(goOn)
				require.NoError(t, <-done)
				slow.Finish()
			})
		})
	}
}

// From within send everything works that does not send; what does waits until its context ends.
func TestCallsFromWithinSend(t *testing.T) {
	forEachMode(t, mmcache.Options{Capacity: 1 << 20}, func(t *testing.T, c mmcache.Cache) {
		other, _ := run(t, c, 100, "b")
		unsent := begin(t, c, "c")
		_, err := unsent.Item(ctx, "c", produceItem("c", 100))
		require.NoError(t, err)
		r := begin(t, c, "a")
		_, err = r.Item(ctx, "a", produceItem("a", 100))
		require.NoError(t, err)
		require.NoError(t, r.Commit(ctx, func(mmcache.Batch) error {
			c.Stats()
			for range c.Keys() {
			}
			require.NoError(t, c.CheckStructure())
			passFence(c)
			c.Invalidate("b")
			h, ok, err := c.Lookup(ctx, "a")
			require.NoError(t, err)
			if ok {
				h.Release()
			}
			begin(t, c, "d").Rollback()
			other.Finish()
			r.SetChildren(3)
			short, cancel := context.WithCancel(ctx)
			cancel()
			waits := func(err error) {
				t.Helper()
				var waited *mmcache.WaitError
				require.ErrorAs(t, err, &waited)
				require.Equal(t, "send", waited.For)
				require.ErrorContains(t, err, "a send must not send itself")
			}
			waits(r.Commit(short, sent))
			if c.Mode() == "lru" {
				waits(unsent.Commit(short, sent))
				waits(c.Clear(short, nothing))
				waits(r.Missed(short, []string{"a"}, sent))
			} else {
				require.NoError(t, unsent.Commit(ctx, sent))
			}
			r.Rollback() // does nothing: the request is sent
			r.Finish()
			for _, h := range c.Holders() {
				if h.ID == r.ID() {
					require.Equal(t, "begun", h.State, "until send has returned")
				}
			}
			return nil
		}))
		require.ErrorIs(t, r.Commit(ctx, sent), mmcache.ErrEnded)
		require.EqualValues(t, 2, c.Stats().Finished)
		if c.Mode() == "lru" {
			unsent.Rollback()
		} else {
			unsent.Finish()
		}
	})
}

// A Rollback from within a send that fails takes effect when it has failed.
func TestRollbackFromWithinAFailedSend(t *testing.T) {
	forEachMode(t, mmcache.Options{Capacity: 1 << 20}, func(t *testing.T, c mmcache.Cache) {
		r := begin(t, c, "a")
		_, err := r.Item(ctx, "a", produceItem("a", 100))
		require.NoError(t, err)
		broken := errors.New("socket closed")
		require.ErrorIs(t, r.Commit(ctx, func(mmcache.Batch) error { r.Rollback(); return broken }), broken)
		require.ErrorIs(t, r.Commit(ctx, sent), mmcache.ErrEnded)
		require.EqualValues(t, 1, c.Stats().RolledBack)
	})
}
