package mmcache_test

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/mmcache"
)

// Of two Shutdowns that wait, both get what they asked for.
func TestTwoShutdowns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := mmcache.Open(mmcache.Options{Mode: "processor_only", Capacity: 1 << 20})
		require.NoError(t, err)
		r, err := c.Begin(ctx, "r")
		require.NoError(t, err)
		errs := make(chan error, 2)
		for range 2 {
			go func() { errs <- c.Shutdown(ctx) }()
		}
		synctest.Wait()
		r.Rollback()
		e1, e2 := <-errs, <-errs
		require.NoError(t, errors.Join(e1, e2))
	})
}

// A Commit that waits for another send of the same request is woken by Abandon.
func TestCommitThatWaitsIsWokenByAbandon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := mmcache.Open(mmcache.Options{Mode: "none"})
		require.NoError(t, err)
		r, err := c.Begin(ctx, "r")
		require.NoError(t, err)
		goOn := make(chan struct{})
		one, two := make(chan error, 1), make(chan error, 1)
		go func() { one <- r.Commit(ctx, func(mmcache.Batch) error { <-goOn; return nil }) }()
		synctest.Wait()
		go func() { two <- r.Commit(ctx, sent) }()
		synctest.Wait()
		require.NoError(t, c.Abandon())
		synctest.Wait()
		select {
		case err := <-two:
			require.ErrorIs(t, err, fs.ErrClosed)
		default:
			t.Error("the waiting Commit was not woken by Abandon")
		}
		close(goOn)
		<-one
		synctest.Wait()
	})
}

// In mode lru a Clear that waits behind a send gives up when the cache shuts down.
func TestClearThatWaitsDoesNothingAfterShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := mmcache.Open(mmcache.Options{Mode: "lru", Capacity: 1 << 20})
		require.NoError(t, err)
		r, err := c.Begin(ctx, "r", want(100, "a")...)
		require.NoError(t, err)
		_, err = r.Item(ctx, "a", produceItem("a", 100))
		require.NoError(t, err)
		goOn := make(chan struct{})
		one, two, three := make(chan error, 1), make(chan error, 1), make(chan error, 1)
		go func() { one <- r.Commit(ctx, func(mmcache.Batch) error { <-goOn; return nil }) }()
		synctest.Wait()
		cleared := false
		go func() {
			two <- c.Clear(ctx, func(lrusync.Envelope) error { cleared = true; return nil })
		}()
		synctest.Wait()
		go func() { three <- c.Shutdown(ctx) }()
		synctest.Wait()
		close(goOn)
		require.NoError(t, <-one)
		synctest.Wait()
		if cleared {
			t.Error("Clear, which waited when Shutdown was called, has cleared the engine:", <-two)
		}
		r.Finish()
		require.NoError(t, <-three)
	})
}

// Shutdown waits for a Clear that is being sent.
func TestShutdownWaitsForTheSendOfAClear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := mmcache.Open(mmcache.Options{Mode: "lru", Capacity: 1 << 20})
		require.NoError(t, err)
		goOn := make(chan struct{})
		two := make(chan error, 1)
		go func() { two <- c.Clear(ctx, func(lrusync.Envelope) error { <-goOn; return nil }) }()
		synctest.Wait()
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if c.Shutdown(short) == nil {
			t.Error("Shutdown returned, and the send of a Clear still runs")
		}
		close(goOn)
		require.NoError(t, <-two)
	})
}

// Commit returns send's own error, also if that is an ErrClosed of something else.
func TestErrorOfSendIsReturnedAsItIs(t *testing.T) {
	c := openCache(t, mmcache.Options{Mode: "none"})
	r, err := c.Begin(ctx, "r")
	require.NoError(t, err)
	defer r.Rollback()
	err = r.Commit(ctx, func(mmcache.Batch) error { return fs.ErrClosed })
	require.Equal(t, fs.ErrClosed.Error(), err.Error())
}

// Commit that waits for another request to make an item names its own request.
func TestWaitErrorOfCommitNamesItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := mmcache.Open(mmcache.Options{Mode: "lru", Capacity: 150})
		require.NoError(t, err)
		// The engine has a.
		first, _ := run(t, c, 100, "a")
		first.Finish()
		r, err := c.Begin(ctx, "r", want(100, "a")...)
		require.NoError(t, err)
		_, err = r.Item(ctx, "a", mustNotProduce(t))
		require.NoError(t, err)
		require.True(t, c.Invalidate("a"))
		// somebody else is making it
		goOn := make(chan struct{})
		other, err := c.Begin(ctx, "other", want(100, "a")...)
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() {
			_, err := other.Item(ctx, "a", func(c context.Context, b *mmcache.Builder) error {
				<-goOn
				return produceItem("a", 100)(c, b)
			})
			done <- err
		}()
		synctest.Wait()
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		err = r.Commit(short, sent)
		var w *mmcache.WaitError
		require.ErrorAs(t, err, &w)
		close(goOn)
		require.NoError(t, <-done)
		other.Rollback()
		r.Rollback()
		require.Equal(t, "r", w.Request, err.Error())
	})
}
