package shmstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmstore"
)

// Who needs room looks at what is in quarantine in turn, and the next one goes on where the last one stopped: behind an
// object that has left quarantine meanwhile.
func TestTurnOfTheQuarantineGoesOnBehindWhatHasLeftIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := private(t, shmstore.Options{Size: 16 << 10, QuarantineTTL: time.Minute})
		abort := func(key string) {
			r := begin(t, s, key)
			put(t, r, key, 3500, 1)
			require.NoError(t, r.Commit())
			r.Abort()
		}
		for _, key := range []string{"first", "left", "later"} {
			abort(key)
			time.Sleep(time.Second)
		}
		put(t, begin(t, s, "kept"), "kept", 3500, 2)
		time.Sleep(time.Minute - 2*time.Second)
		// The time of first and left is over. This looks at first, and finds its room.
		put(t, begin(t, s, "kept too"), "kept too", 3500, 2)
		require.False(t, cached(s, "first"))
		require.True(t, cached(s, "left"))
		gone, err := s.Evict("left")
		require.NoError(t, err)
		require.Len(t, gone, 1)

		put(t, begin(t, s, "kept as well"), "kept as well", 3500, 2)
		_, err = begin(t, s, "full").Put("full", make([]byte, 3500), shmstore.PutOptions{})
		require.ErrorIs(t, err, shmring.ErrFull, "the time of later is not over")
		require.NoError(t, s.CheckStructure())
		time.Sleep(time.Second)
		put(t, begin(t, s, "room"), "room", 3500, 2)
		require.False(t, cached(s, "later"))
	})
}
