package folder

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
)

// openAt opens a level that is closed at the end of the test.
func openAt(t testing.TB, dir string, o Options) *Level {
	t.Helper()
	l, err := Open(t.Context(), dir, o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// suite are the options of the suite for levels over folders that newDir makes.
func suite(newDir func(t testing.TB) string, o Options) tiertest.Options {
	return tiertest.Options{
		Unlimited: true, // Capacity is no hard bound: what was put stays for MinAge
		Open:      func(t testing.TB, _ int64) tier.Level { return openAt(t, newDir(t), o) },
		Reopen: func(t testing.TB, closed tier.Level) tier.Level {
			return openAt(t, closed.(*Level).path, o)
		},
		Kill: func(t testing.TB, l tier.Level) tier.Level {
			return openAt(t, l.(*Level).path, o) // another host
		},
		Damage: func(t testing.TB, l tier.Level, k tier.Key) {
			p, err := disk.Native{}.Path(k)
			require.NoError(t, err)
			name := filepath.Join(l.(*Level).path, p)
			b, err := os.ReadFile(name)
			require.NoError(t, err)
			b[len(b)-1] ^= 1
			require.NoError(t, os.WriteFile(name, b, 0o600))
		},
	}
}

// TestLevel: the level keeps what package tier promises, but for what only an owner could count.
func TestLevel(t *testing.T) {
	s := suite(func(t testing.TB) string { return t.TempDir() }, Options{})
	s.Histories = 2
	tiertest.Level(t, s)
}

// TestLevelIsCleanedUp: the same while a goroutine searches the folder all the time, and touches are due at each read.
func TestLevelIsCleanedUp(t *testing.T) {
	o := Options{MinAge: 10 * time.Minute, Capacity: 1 << 30, interval: time.Millisecond, lease: time.Second, grace: time.Millisecond}
	s := suite(func(t testing.TB) string { return t.TempDir() }, o)
	s.Histories, s.Without = 2, []string{"history"} // of one goroutine, which is slow here: TestLevel has it
	tiertest.Level(t, s)
}
