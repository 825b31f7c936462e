package objstore

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// A Shutdown that waits for a view, or for a call that is running, ends with Abandon.
func TestShutdownThatWaitsForAViewEndsWithAbandon(t *testing.T) {
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, _ := inFolder(t, k)
				require.NoError(t, w.Segment().Hold()) // a call that is running
				if k == fifo {
					h, err := w.Put("k", image(100, 1))
					require.NoError(t, err)
					v, err := w.Get(h)
					require.NoError(t, err)
					defer v.Release()
				}
				defer w.Segment().Release()
				done := make(chan error, 1)
				go func() { done <- w.Shutdown(context.Background()) }()
				synctest.Wait()
				require.NoError(t, w.Abandon())
				synctest.Wait()
				select {
				case err := <-done:
					require.ErrorIs(t, err, errClosed)
				default:
					t.Error("Shutdown still waits after Abandon")
				}
			})
		})
	}
}

// A Put that waits for room ends with Abandon, whatever its context.
func TestPutThatWaitsEndsWithAbandon(t *testing.T) {
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, _ := inFolder(t, k)
				r := begin(t, w, "r")
				fill(t, r, 15<<10)
				done := make(chan error, 1)
				go func() {
					_, err := r.Request.Put("waits", image(15<<10, 1), PutOptions{Wait: context.Background()})
					done <- err
				}()
				synctest.Wait()
				require.NoError(t, w.Abandon())
				require.ErrorIs(t, <-done, errClosed)
			})
		})
	}
}

// Of two Shutdowns that wait, both get what they asked for.
func TestTwoShutdowns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := inFolder(t, pool)
		r, err := w.Begin("r")
		require.NoError(t, err)
		done := make(chan error, 2)
		for range 2 {
			go func() { done <- w.Shutdown(context.Background()) }()
		}
		synctest.Wait()
		r.Rollback()
		require.NoError(t, <-done)
		require.NoError(t, <-done)
	})
}

// A request that keeps no object does not block Close, and ends with it.
func TestCloseEndsRequestsThatKeepNothing(t *testing.T) {
	w, _ := inFolder(t, pool)
	r, err := w.Begin("r")
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.True(t, r.Ended())
}
