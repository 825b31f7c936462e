package redis

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/internal/redistest"
	"github.com/ringcache/ringcache/tier"
)

// The level keeps what package tier promises, but for what the server does not count.
func TestLevel(t *testing.T) {
	s := redistest.Start(t)
	levels := 0
	reopen := func(t testing.TB, old tier.Level) tier.Level {
		l, err := Open(t.Context(), old.(*Level).settings.Options)
		require.NoError(t, err)
		return l
	}
	tiertest.Level(t, tiertest.Options{
		Unlimited: true,
		Open: func(t testing.TB, _ int64) tier.Level {
			levels++
			l, err := Open(t.Context(), Options{URL: "unix://" + s.Socket(), Prefix: fmt.Sprint("level ", levels, ":")})
			require.NoError(t, err)
			return l
		},
		Reopen: reopen,
		Kill: func(t testing.TB, old tier.Level) tier.Level {
			t.Cleanup(func() { old.Close() }) // it keeps nothing, and may be in the middle of a Put
			return reopen(t, old)
		},
		Damage: func(t testing.TB, l tier.Level, k tier.Key) {
			at, err := Objects{}.keys(k)
			require.NoError(t, err)
			c := raw(t, s)
			key := l.(*Level).settings.Prefix + at.body
			last := c.StrLen(t.Context(), key).Val() - 1
			old := c.GetRange(t.Context(), key, last, last).Val()
			require.NoError(t, c.SetRange(t.Context(), key, last, string([]byte{old[0] ^ 1})).Err())
		},
	})
}
