package shmstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmstore"
)

// TestClockJumpsForward: a jump ends what time may end, the quarantine of payloads that nobody counts, and
// nothing else. It does not free what a reader with a slot looks at, or what an open request has.
func TestClockJumpsForward(t *testing.T) {
	s, o := inFolder(t, shmstore.Options{ReaderSlots: 1})
	q := begin(t, s, "aborted")
	looked := put(t, q, "looked at", 1000, 'l')
	put(t, q, "aborted", 1000, 'a')
	require.NoError(t, q.Commit())
	put(t, begin(t, s, "open"), "open", 1000, 'o')
	r, err := shmstore.Open(o.Name, shmstore.ReaderOptions{Dir: o.Dir})
	require.NoError(t, err)
	v, err := r.Get(looked.Handle())
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		q.Abort()
		time.Sleep(100 * 365 * 24 * time.Hour)
		_, err := s.Evict()
		require.NoError(t, err)
		require.NoError(t, s.CheckStructure())
	})
	require.False(t, cached(s, "aborted"), "its time is over")
	require.True(t, cached(s, "open"))
	require.NoError(t, v.Check(), "it is looked at")
	require.Equal(t, byte('l'), v.Bytes()[999])
	v.Release()
	freed, err := s.Evict()
	require.NoError(t, err)
	require.Len(t, freed, 1)
	require.NoError(t, r.Close())
}

// TestClockJumpsBack: in a bubble of synctest it is the year 2000. What was begun before ends neither too early nor
// never: fences and readers end it as ever, and room is found without waiting.
func TestClockJumpsBack(t *testing.T) {
	s, _ := inFolder(t, shmstore.Options{Size: 16 << 10})
	q := begin(t, s, "aborted")
	put(t, q, "aborted", 7000, 'a')
	require.NoError(t, q.Commit())
	q.Abort()
	open := begin(t, s, "open")
	put(t, open, "open", 7000, 's')
	synctest.Test(t, func(t *testing.T) {
		require.Equal(t, 2000, time.Now().UTC().Year())
		freed, err := s.Evict()
		require.NoError(t, err)
		require.Empty(t, freed)
		require.False(t, open.Ended())
		_, err = begin(t, s, "full").Put("more", make([]byte, 7000), shmstore.PutOptions{})
		require.ErrorIs(t, err, shmring.ErrFull, "an answer, and no wait")
		s.Fence().Passed()
		put(t, begin(t, s, "room"), "more", 7000, 'm')
		open.Rollback()
		require.NoError(t, s.CheckStructure())
	})
	require.False(t, cached(s, "aborted"))
	require.True(t, cached(s, "more"))
}
