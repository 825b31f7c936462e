package shmstore_test

import (
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/shmstore"
)

func TestFenceEndsWhatWasAbortedBefore(t *testing.T) {
	s := private(t, shmstore.Options{Size: 16 << 10, QuarantineTTL: -1})
	abort := func(key string) {
		r := begin(t, s, key)
		put(t, r, key, 1000, 1)
		require.NoError(t, r.Commit())
		r.Abort()
	}
	abort("before")
	f := s.Fence()
	abort("behind")
	_, err := s.Evict()
	require.NoError(t, err)
	require.True(t, cached(s, "before") && cached(s, "behind"))
	f.Passed()
	freed, err := s.Evict()
	require.NoError(t, err)
	require.Len(t, freed, 1)
	require.False(t, cached(s, "before"))
	require.True(t, cached(s, "behind"))
	st, err := s.Inspect(func(_ *shmstore.Object, o shmstore.ObjectState) {
		require.Equal(t, "behind", o.Key)
		require.True(t, o.Quarantined)
	})
	require.NoError(t, err)
	require.Equal(t, 1, st.QuarantinedObjects)
	require.NoError(t, s.ResetReaders(0))
	freed, err = s.Evict()
	require.NoError(t, err)
	require.Len(t, freed, 1)
	require.ErrorIs(t, s.ResetReaders(-1), fs.ErrInvalid)
	shmstore.Fence{}.Passed() // nothing
}

// Without counts a long time is proof enough.
func TestQuarantineEndsByTime(t *testing.T) {
	for name, c := range map[string]struct{ option, want time.Duration }{
		"a minute":    {time.Minute, time.Minute},
		"the default": {0, 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := private(t, shmstore.Options{Size: 16 << 10, QuarantineTTL: c.option})
				r := begin(t, s, "r")
				put(t, r, "a", 1000, 1)
				require.NoError(t, r.Commit())
				r.Abort()
				time.Sleep(c.want - 1)
				gone, err := s.Evict("a")
				require.NoError(t, err)
				require.Empty(t, gone)
				time.Sleep(time.Nanosecond)
				gone, err = s.Evict("a")
				require.NoError(t, err)
				require.NotEmpty(t, gone)
			})
		})
	}
}
