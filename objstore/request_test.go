package objstore

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmstore"
)

func TestCommittedRequestSaysThatItWasCommitted(t *testing.T) {
	for _, k := range kinds {
		s := newStoreOf(t, k, Options{RingSize: 4096, MaxObjectSize: 4096, Readers: 1})
		r := begin(t, s, "r")
		res, err := r.Reserve("late", bytesItem(10))
		require.NoError(t, err)
		require.NoError(t, r.Commit())
		_, lookup := r.Lookup("a")
		_, put := r.Put("a", bytesItem(10))
		_, late := res.Commit()
		for _, err := range []error{r.Commit(), lookup, put, late} {
			require.ErrorIs(t, err, ErrEnded)
			require.ErrorContains(t, err, "was committed")
			require.NotContains(t, err.Error(), "has ended")
		}
		res.Discard()
		r.Finish()
		require.ErrorIs(t, r.Commit(), ErrEnded)
		require.ErrorContains(t, r.Commit(), "finished")
	}
}

func TestFinishBeforeCommitIsCounted(t *testing.T) {
	s := newPoolStore(t, Options{})
	misused := func() int {
		st, err := s.Stats()
		require.NoError(t, err)
		return st.Misused
	}
	r := begin(t, s, "r")
	_, err := r.Put("a", bytesItem(10))
	require.NoError(t, err)
	r.Finish()
	r.Abort()
	require.Equal(t, 2, misused())
	require.False(t, r.Ended())
	require.NoError(t, r.Commit(), "it is open as before")
	r.Rollback() // may be deferred
	r.Finish()
	r.Finish()
	r.Abort()
	require.Equal(t, 2, misused())
}

// vLLM's storage takes an empty key, so a store does; a request to an engine never
// has one.
func TestRequestsRefuseAnEmptyKey(t *testing.T) {
	s := newStore(t, Options{RingSize: 4096, MaxObjectSize: 4096, Readers: 1})
	r := begin(t, s, "r")
	_, put := r.Put("", bytesItem(10))
	_, reserve := r.Reserve("", bytesItem(10))
	_, lookup := r.Lookup("")
	_, wait := r.Request.Put("", bytesItem(10), PutOptions{Wait: context.Background()})
	for _, err := range []error{put, reserve, lookup, wait} {
		require.ErrorIs(t, err, errInvalid)
		require.ErrorContains(t, err, "key")
	}
	r.Rollback()
	h, err := s.Put("", bytesItem(10))
	require.NoError(t, err)
	s.readAll(t, h, "")
}

func TestZeroOptionsHaveDefaults(t *testing.T) {
	o := Options{RingSize: 4096, Readers: 1, Name: "zero", Dir: t.TempDir()}
	w, err := pool.create(o)
	require.NoError(t, err)
	require.Equal(t, sidecar.Pool, sidecar.Of(w.Segment()).Options().Policy)
	_, err = w.Put("a", bytesItem(3000))
	require.NoError(t, err, "the largest object is what the ring has room for")
	require.NoError(t, w.CheckStructure())
	require.NoError(t, w.Detach())
	w, a, err := adoptPool(o)
	require.NoError(t, err)
	require.Equal(t, 1, a.Kept)
	require.NoError(t, w.Close())
}

func TestMaxObjectSizeAboveTheRing(t *testing.T) {
	o := Options{RingSize: 4096, MaxObjectSize: 4097, Readers: 1}
	_, err := CreatePool(o)
	require.ErrorIs(t, err, errInvalid)
	require.ErrorContains(t, err, "MaxObjectSize 4097")
	require.ErrorContains(t, err, "RingSize 4096")
	s := newStore(t, o) // a FIFO: vLLM takes it, and reports a full ring
	_, err = s.Put("a", pickled(make([]byte, 4045)))
	require.ErrorIs(t, err, ErrTooLarge)
	var large *shmstore.TooLargeError
	require.ErrorAs(t, err, &large)
	require.True(t, large.Ring)
}
