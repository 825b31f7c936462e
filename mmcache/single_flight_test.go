package mmcache_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/mmcache"
)

// begin starts a request for one item of 100 bytes.
func begin(t testing.TB, c mmcache.Cache, key string) *mmcache.Request {
	t.Helper()
	r, err := c.Begin(ctx, nextID(), want(100, key)...)
	require.NoError(t, err)
	return r
}

func openInBubble(t *testing.T, m string) mmcache.Cache {
	return openCache(t, mmcache.Options{Mode: m, Capacity: 4096})
}

// However many requests want an item at once, it is made once.
func TestSingleFlight(t *testing.T) {
	for _, m := range []string{"none", "processor_only", "lru"} {
		t.Run(m, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := openInBubble(t, m)
				var made atomic.Int64
				slow := func(ctx context.Context, b *mmcache.Builder) error {
					made.Add(1)
					time.Sleep(time.Second)
					return produceItem("a", 100)(ctx, b)
				}
				done := make(chan error)
				for range 20 {
					r := begin(t, c, "a")
					go func() {
						defer r.Finish()
						_, err := r.Item(ctx, "a", slow)
						if err == nil {
							err = r.Commit(ctx, func(b mmcache.Batch) error {
								if w := b.Items[0]; w.Item() != nil {
									assertContent(t, "a", w.Item())
								}
								return nil
							})
						}
						done <- err
					}()
				}
				for range 20 {
					require.NoError(t, <-done)
				}
				synctest.Wait()
				require.EqualValues(t, 1, made.Load())
				require.EqualValues(t, 19, c.Stats().Coalesced)
				require.NoError(t, c.Close())
			})
		})
	}
}

// Who gives up does not take those along who wait for the same item; a producer
// that fails does.
func TestFlightOfAnother(t *testing.T) {
	broken := errors.New("not an image")
	for name, end := range map[string]struct {
		leader func(ctx context.Context) error // how the first producer ends
		text   string                          // of its error
		made   bool                            // the second has to make the item
	}{
		"canceled": {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, "deadline exceeded", true},
		"panicked": {func(context.Context) error { time.Sleep(time.Second); panic("decoder") }, "panicked: decoder", true},
		"failed":   {func(context.Context) error { time.Sleep(time.Second); return broken }, "not an image", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := openInBubble(t, "processor_only")
				leader := begin(t, c, "a")
				failed := make(chan error, 1)
				go func() {
					defer leader.Rollback()
					defer func() {
						if x := recover(); x != nil {
							failed <- fmt.Errorf("panicked: %v", x)
						}
					}()
					short, cancel := context.WithTimeout(ctx, time.Second)
					defer cancel()
					_, err := leader.Item(short, "a", func(ctx context.Context, _ *mmcache.Builder) error { return end.leader(ctx) })
					failed <- err
				}()
				synctest.Wait()
				r := begin(t, c, "a")
				made := false
				_, err := r.Item(ctx, "a", func(ctx context.Context, b *mmcache.Builder) error {
					made = true
					return produceItem("a", 100)(ctx, b)
				})
				require.ErrorContains(t, <-failed, end.text)
				require.Equal(t, end.made, made)
				if !end.made {
					require.ErrorIs(t, err, broken)
				}
				r.Rollback()
				synctest.Wait()
				require.NoError(t, c.Close())
			})
		})
	}
}

// Waiting for another's item ends with the own context.
func TestWaitingEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openInBubble(t, "none")
		leader := begin(t, c, "a")
		release, made := make(chan struct{}), make(chan error, 1)
		go func() {
			_, err := leader.Item(ctx, "a", func(ctx context.Context, b *mmcache.Builder) error {
				<-release
				return produceItem("a", 100)(ctx, b)
			})
			made <- err
		}()
		synctest.Wait()
		r := begin(t, c, "a")
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := r.Item(short, "a", mustNotProduce(t))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		r.Rollback()
		close(release)
		require.NoError(t, <-made)
		leader.Rollback()
		require.NoError(t, c.Close())
	})
}

// The engine may answer before Commit has returned to who called it.
func TestFinishDuringCommit(t *testing.T) {
	c := openCache(t, mmcache.Options{Mode: "lru", Capacity: 4096})
	for range 100 {
		r := begin(t, c, "a")
		_, err := r.Item(ctx, "a", produceItem("a", 100))
		require.NoError(t, err)
		finished := make(chan struct{})
		require.NoError(t, r.Commit(ctx, func(mmcache.Batch) error {
			go func() { r.Finish(); close(finished) }()
			return nil
		}))
		<-finished
	}
	require.EqualValues(t, 100, c.Stats().Finished)
}

// A request that ends while one of its items is being made leaves nothing.
func TestRollbackWhileAnItemIsMade(t *testing.T) {
	for _, m := range []string{"none", "processor_only", "lru"} {
		t.Run(m, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := openInBubble(t, m)
				r := begin(t, c, "a")
				made := make(chan error, 1)
				go func() {
					_, err := r.Item(ctx, "a", func(ctx context.Context, b *mmcache.Builder) error {
						time.Sleep(time.Second)
						return produceItem("a", 100)(ctx, b)
					})
					made <- err
				}()
				synctest.Wait()
				r.Rollback()
				require.ErrorAs(t, c.Close(), new(*mmcache.BusyError), "the item is still being made")
				require.NoError(t, <-made)
				synctest.Wait()
				require.Zero(t, c.Stats().InFlight)
				require.NoError(t, c.Close())
			})
		})
	}
}
