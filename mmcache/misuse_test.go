package mmcache_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/mmcache"
)

// A nil send is an error that can be read, not a nil dereference.
func TestNilSendIsAnError(t *testing.T) {
	forEachMode(t, mmcache.Options{Capacity: 1 << 20}, func(t *testing.T, c mmcache.Cache) {
		r := begin(t, c, "a")
		defer r.Rollback()
		_, err := r.Item(ctx, "a", produceItem("a", 100))
		require.NoError(t, err)
		requireInvalid(t, r.Commit(ctx, nil), "the send of Commit is nil")
		require.NoError(t, r.Commit(ctx, sent))
		if c.Mode() == "lru" {
			requireInvalid(t, r.Missed(ctx, []string{"a"}, nil), "the send of Missed is nil")
		}
		r.Finish()
		requireInvalid(t, c.Clear(ctx, nil), "the send of Clear is nil")
		require.Zero(t, c.Stats().Epoch)
	})
}

// Who subscribes to a closed cache learns at once that nothing will come.
func TestSubscribeAfterCloseEnds(t *testing.T) {
	c := openCache(t, mmcache.Options{})
	require.NoError(t, c.Close())
	events, stop := c.Subscribe(1)
	select {
	case _, open := <-events:
		require.False(t, open)
	default:
		t.Error("the channel of a closed cache is open")
	}
	stop()
	stop()
}

// Two open requests can't have one id; it is free again when the first has ended.
func TestRequestIDIsRefusedWhileOpen(t *testing.T) {
	forEachMode(t, mmcache.Options{Capacity: 1 << 20}, func(t *testing.T, c mmcache.Cache) {
		r := begin(t, c, "a")
		_, err := c.Begin(ctx, r.ID(), want(100, "b")...)
		requireInvalid(t, err, fmt.Sprintf("request %q is open already", r.ID()))
		r.Rollback()
		begin(t, c, "a").Rollback()
	})
}

// What is said of a request that was committed is that, and not that it ended.
func TestCommittedRequestIsNotCalledEnded(t *testing.T) {
	forEachMode(t, mmcache.Options{Capacity: 1 << 20}, func(t *testing.T, c mmcache.Cache) {
		r, _ := run(t, c, 100, "a")
		for _, err := range []error{
			r.Commit(ctx, sent),
			func() error { _, err := r.Item(ctx, "a", mustNotProduce(t)); return err }(),
		} {
			require.ErrorIs(t, err, mmcache.ErrEnded)
			require.ErrorContains(t, err, "was committed already")
			require.NotContains(t, err.Error(), "has ended")
		}
		r.Finish()
		require.ErrorContains(t, r.Commit(ctx, sent), "has ended")
	})
}

// The error of a tenant's producer is no business of another tenant, who makes the
// item by its own producer.
func TestErrorOfAnotherTenantIsNotPassedOn(t *testing.T) {
	o := mmcache.Options{Mode: "processor_only", Capacity: 1 << 20}
	bubble(t, o, func(t *testing.T, c mmcache.Cache) {
		begin := func(id, tenant string) *mmcache.Request {
			r, err := c.Begin(ctx, id, mmcache.Want{Key: "k", Bytes: 200, Tenant: tenant})
			require.NoError(t, err)
			return r
		}
		leader, same, other := begin("leader", "a"), begin("same", "a"), begin("other", "b")
		private := errors.New("https://a.example/private.png was not found")
		fail := make(chan struct{})
		errs := map[*mmcache.Request]chan error{leader: make(chan error, 1), same: make(chan error, 1), other: make(chan error, 1)}
		ask := func(r *mmcache.Request, p mmcache.Producer) {
			go func() {
				_, err := r.Item(ctx, "k", p)
				errs[r] <- err
			}()
			synctest.Wait()
		}
		ask(leader, func(context.Context, *mmcache.Builder) error { <-fail; return private })
		ask(same, mustNotProduce(t))
		ask(other, produceItem("k", 100))
		close(fail)
		require.ErrorIs(t, <-errs[leader], private)
		require.ErrorIs(t, <-errs[same], private)
		require.NoError(t, <-errs[other])
		for r := range errs {
			r.Rollback()
		}
	})
}
