package tier_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
)

func TestDelete(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		l := b.lease("l")
		b.store(l, "held", "", 10)
		require.NoError(t, put(b.Store, "everywhere", "", 10))
		require.NoError(t, put(b.maps[1], "remote", "", 10))
		synctest.Wait()
		errs := b.Delete(t.Context(), append(keys("everywhere", "nowhere", "held", "remote", "everywhere"), tier.Key{}))
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], tier.ErrNotFound)
		require.ErrorIs(t, errs[2], tier.ErrInUse)
		require.NoError(t, errs[3])
		require.ErrorIs(t, errs[4], tier.ErrNotFound, "it was deleted already")
		require.ErrorContains(t, errs[5], "empty")
		require.Empty(t, b.has("everywhere"))
		require.Empty(t, b.has("remote"))
		require.Equal(t, "memory disk remote", b.has("held"), "of what a lease has nothing is deleted")
		require.Equal(t, int64(2), b.counter("memory deleted"))

		require.NoError(t, put(b.maps[1], "x", "", 10))
		b.disk.Fail(tier.ErrUnavailable)
		require.ErrorIs(t, b.Delete(t.Context(), keys("x"))[0], tier.ErrUnavailable)
		require.Empty(t, b.has("x"), "the others have it no more")
	})
}

// TestDeletedDoesNotComeBack: while it is fetched, written, or waits for either.
func TestDeletedDoesNotComeBack(t *testing.T) {
	for _, method := range []string{"Stat", "Get", "Put"} {
		for _, queued := range []bool{false, true} {
			t.Run(method, func(t *testing.T) {
				in(t, func(t *testing.T) {
					b := newBed(t, 1<<20, func(o *tier.Options) { o.Lower = o.Lower[1:]; o.MaxCalls, o.MaxBacklog = 2, 1<<20 })
					wait := make(chan struct{})
					b.remote.Do(func(c tiertest.Call) tiertest.Answer {
						if c.Method == method {
							return tiertest.Answer{Wait: wait}
						}
						return tiertest.Answer{}
					})
					l := b.lease("l")
					if queued { // behind others
						for _, name := range []string{"1", "2", "3"} {
							if method == "Put" {
								require.NoError(t, put(b.Store, name, "", 1<<18))
							} else {
								require.NoError(t, put(b.maps[1], name, "", 1<<18))
								l.Pin(keys(name))
							}
							synctest.Wait()
						}
					}
					if method == "Put" {
						require.NoError(t, put(b.Store, "x", "", 100))
					} else {
						require.NoError(t, put(b.maps[1], "x", "", 100))
						require.ErrorIs(t, l.Pin(keys("x"))[0].Err, tier.ErrPending)
					}
					synctest.Wait()
					done := make(chan error)
					go func() { done <- b.Delete(t.Context(), keys("x"))[0] }()
					synctest.Wait()
					close(wait)
					require.NoError(t, <-done)
					synctest.Wait()
					require.Empty(t, b.has("x"), "%s, queued %v", method, queued)
					require.ErrorIs(t, b.get("x"), tier.ErrNotFound)
					l.Release()
				})
			})
		}
	}
}

// TestNothingIsBroughtWhileItIsDeleted: memory has lost it already, and a lower level not yet.
func TestNothingIsBroughtWhileItIsDeleted(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) { o.PromoteAfter = 1 })
		require.NoError(t, put(b.maps[1], "x", "", 100))
		wait := make(chan struct{})
		b.disk.Do(func(c tiertest.Call) tiertest.Answer {
			if is(c, "Delete") {
				return tiertest.Answer{Wait: wait}
			}
			return tiertest.Answer{}
		})
		done := make(chan error)
		go func() { done <- b.Delete(t.Context(), keys("x"))[0] }()
		synctest.Wait()
		require.ErrorIs(t, b.lease("l").Pin(keys("x"))[0].Err, tier.ErrNotFound)
		require.ErrorIs(t, b.Prefetch(t.Context(), keys("x"), 0)[0], tier.ErrNotFound)
		require.NoError(t, b.get("x"), "it is not deleted yet")
		require.Equal(t, "remote", b.has("x"))
		close(wait)
		require.NoError(t, <-done)
		require.ErrorIs(t, b.pin(b.lease("l"), "x")[0], tier.ErrNotFound)
	})
}

// TestDeleteOfWhatIsInUseIsStillWritten: a pending write of an object that can't be deleted stays pending.
func TestDeleteOfWhatIsInUseIsStillWritten(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		b.disk.Fail(tier.ErrUnavailable)
		l := b.lease("l")
		b.store(l, "x", "", 100)
		synctest.Wait()
		require.ErrorIs(t, b.Delete(t.Context(), keys("x"))[0], tier.ErrInUse)
		l.Release()
		b.disk.Do(nil)
		_, err := b.Drain(t.Context())
		require.NoError(t, err)
		require.Equal(t, "memory disk remote", b.has("x"))
	})
}

func TestDeleteIsCancelled(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) { o.Lower[0].Timeout = time.Hour })
		wait := make(chan struct{})
		b.disk.Do(func(c tiertest.Call) tiertest.Answer {
			if is(c, "Put") {
				return tiertest.Answer{Wait: wait}
			}
			return tiertest.Answer{}
		})
		require.NoError(t, put(b.Store, "x", "", 100))
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- b.Delete(ctx, keys("x"))[0] }()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		close(wait)
		_, err := b.Drain(t.Context())
		require.NoError(t, err)
		require.Equal(t, "memory disk remote", b.has("x"), "what was not deleted is there, and written")
	})
}
