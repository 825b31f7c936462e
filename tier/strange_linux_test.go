package tier_test

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/redistest"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/redis"
)

// TestStrangeRedis: a Redis that announces 2^63-1 bytes is away. The store serves what memory has, and writes
// what is pending when the server is sane again.
func TestStrangeRedis(t *testing.T) {
	f := redistest.NewFake(t)
	m := openMemory(t, t.TempDir(), 1<<20)
	r, err := redis.Open(t.Context(), redis.Options{URL: f.URL(), Retry: 10 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close()) })
	s := openStore(t, tier.Options{Memory: m, Lower: []tier.Lower{{Level: r}}})
	get := func(name string) error {
		g := []tier.Get{{Key: key(name)}}
		s.Get(t.Context(), g)
		if g[0].Err == nil {
			require.Equal(t, content(name, 1000), g[0].Bytes)
		}
		return g[0].Err
	}
	require.NoError(t, put(s, "before", "", 1000))
	_, err = s.Drain(t.Context())
	require.NoError(t, err)

	f.Do(func(conn io.Writer, _ []string, _ []byte) error {
		_, err := io.WriteString(conn, "$9223372036854775807\r\n")
		return err
	})
	require.NoError(t, put(s, "during", "", 1000))
	require.NoError(t, get("before"))
	require.NoError(t, get("during"))
	require.ErrorIs(t, get("nowhere"), tier.ErrUnavailable)
	require.Eventually(t, func() bool { return s.State().Levels[1].Away }, 2*time.Minute, time.Millisecond)

	f.Do(nil)
	require.Eventually(t, func() bool { return !s.State().Levels[1].Away }, 2*time.Minute, time.Millisecond)
	_, err = s.Drain(t.Context())
	require.NoError(t, err)
	for _, found := range r.Stat(t.Context(), keys("before", "during")) {
		require.NoError(t, found.Err)
	}
	require.NoError(t, m.CheckStructure())
}
