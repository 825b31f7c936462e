package objstore

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// A Shutdown that waits for a view, or for a call that is running, ends with Abandon.
func TestShutdownThatWaitsForAViewEndsWithAbandon(t *testing.T) {
	for name, p := range policies {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, _ := inFolder(t, p)
				require.NoError(t, w.sv.seg.Hold()) // a call that is running
				if p == FIFO {
					h, err := w.Put("k", image(100, 1))
					require.NoError(t, err)
					v, err := w.Get(h, "k")
					require.NoError(t, err)
					defer v.Release()
				}
				defer w.sv.seg.Release()
				done := make(chan error, 1)
				go func() { done <- w.Shutdown(context.Background()) }()
				synctest.Wait()
				require.NoError(t, w.Abandon())
				synctest.Wait()
				select {
				case err := <-done:
					require.ErrorIs(t, err, ErrClosed)
				default:
					t.Error("Shutdown still waits after Abandon")
				}
			})
		})
	}
}

// Obtain may look before Abandon and ask for the end of the reservation after it.
func TestObtainEndsWithAbandon(t *testing.T) {
	for name, p := range policies {
		t.Run(name, func(t *testing.T) {
			w, _ := inFolder(t, p)
			res, err := w.Reserve("k", image(100, 1))
			require.NoError(t, err)
			defer res.Discard()
			require.NoError(t, w.Abandon())
			select {
			case <-w.ended("k"): // what Obtain waits for
			default:
				t.Error("Obtain waits for a reservation of an abandoned store")
			}
		})
	}
}

// Of two Shutdowns that wait, both get what they asked for.
func TestTwoShutdowns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := inFolder(t, Pool)
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
	w, _ := inFolder(t, Pool)
	r, err := w.Begin("r")
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.True(t, r.Ended())
}
