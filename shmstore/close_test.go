package shmstore_test

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmstore"
)

func TestAbandonKeepsWhatIsLookedAt(t *testing.T) {
	s, o := inFolder(t, shmstore.Options{})
	r := begin(t, s, "r")
	a := put(t, r, "a", 5000, 7)
	b, err := r.Bytes(a)
	require.NoError(t, err)
	_, err = begin(t, s, "other").Bytes(a)
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.ErrorContains(t, err, "request other")
	res, err := r.Reserve("b", 100, shmstore.PutOptions{})
	require.NoError(t, err)
	var busy *shmstore.BusyError
	require.ErrorAs(t, s.Close(), &busy)
	require.ErrorContains(t, busy, `request "r" (not sent`)
	require.ErrorContains(t, busy, `a reservation of key "b"`)
	require.NoError(t, s.Abandon())
	left, err := os.ReadDir(o.Dir)
	require.NoError(t, err)
	require.Empty(t, left)
	require.Equal(t, bytes.Repeat([]byte{7}, 5000), b)
	copy(res.Bytes(), "still there")
	_, err = res.Commit(1)
	require.ErrorIs(t, err, fs.ErrClosed)
	r.Rollback()
	_, err = s.Begin(shmstore.RequestOptions{ID: "late"})
	require.ErrorIs(t, err, fs.ErrClosed)
	require.NoError(t, s.Shutdown(context.Background()))
	require.NoError(t, s.Close())
}

func TestShutdownWaitsForRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := private(t, shmstore.Options{Size: 16 << 10})
		r := begin(t, s, "open")
		put(t, r, "a", 10, 1)
		short, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err := s.Shutdown(short)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, segment.ErrBusy)
		require.ErrorContains(t, err, `request "open"`)
		_, err = s.Begin(shmstore.RequestOptions{ID: "late"})
		require.ErrorIs(t, err, fs.ErrClosed)
		done := make(chan error, 1)
		go func() { done <- s.Shutdown(context.Background()) }()
		synctest.Wait()
		require.Empty(t, done)
		r.Rollback()
		require.NoError(t, <-done)
	})
}

// A request that ended with its readers, and whose owner still looks at a payload, is all that
// is in the way of a Detach. The error names it.
func TestBusyErrorNamesARequestThatWasReset(t *testing.T) {
	s, _ := inFolder(t, shmstore.Options{})
	r := begin(t, s, "r")
	a := put(t, r, "a", 5000, 7)
	_, err := r.Bytes(a)
	require.NoError(t, err)
	require.NoError(t, r.Commit())
	require.NoError(t, s.ResetReaders(0))
	var busy *shmstore.BusyError
	require.ErrorAs(t, s.Detach(), &busy)
	require.Equal(t, []shmstore.Holder{{Kind: "view", Count: 1}}, busy.Holders)
	require.Equal(t, busy.Holders, s.Holders())
	r.Finish() // by its owner
	require.Empty(t, s.Holders())
	require.NoError(t, s.Close())
}
