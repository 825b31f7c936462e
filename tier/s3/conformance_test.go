package s3

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/internal/s3test"
	"github.com/ringcache/ringcache/tier"
)

// TestLevel: the level keeps what package tier promises, with a store in memory, which may not know conditions,
// and with a real one.
func TestLevel(t *testing.T) {
	for _, name := range []string{"memory", "without conditions"} {
		t.Run(name, func(t *testing.T) {
			f := s3test.NewFake()
			f.NoConditions = name == "without conditions"
			conformance(t, s3test.NewFaults(t, f).URL, 2, func(_ testing.TB, key string) {
				v := f.Get(key)
				v[len(v)-1] ^= 1
				f.Set(key, v)
			})
		})
	}
	t.Run("versitygw", func(t *testing.T) {
		s := s3test.Start(t)
		conformance(t, s.URL, 1, func(t testing.TB, key string) {
			v, err := os.ReadFile(s.File(key))
			require.NoError(t, err)
			v[len(v)-1] ^= 1
			require.NoError(t, os.WriteFile(s.File(key), v, 0o600))
		})
	})
}

func conformance(t *testing.T, url func(prefix string) string, histories int, damage func(t testing.TB, key string)) {
	levels := 0
	reopen := func(t testing.TB, old tier.Level) tier.Level {
		l, err := Open(t.Context(), old.(*Level).settings.Options)
		require.NoError(t, err)
		return l
	}
	tiertest.Level(t, tiertest.Options{
		Unlimited: true,
		Histories: histories,
		Open: func(t testing.TB, _ int64) tier.Level {
			levels++
			l, err := Open(t.Context(), options(url(fmt.Sprint("level ", levels))))
			require.NoError(t, err)
			return l
		},
		Reopen: reopen,
		Kill: func(t testing.TB, old tier.Level) tier.Level {
			t.Cleanup(func() { old.Close() }) // it keeps nothing, and may be in the middle of a Put
			return reopen(t, old)
		},
		Damage: func(t testing.TB, l tier.Level, k tier.Key) { damage(t, l.(*Level).settings.keyOf(k)) },
	})
}
