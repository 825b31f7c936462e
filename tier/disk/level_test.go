package disk_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
)

// roots remembers the folder of each level.
type roots struct {
	dirs map[tier.Level]string
	o    map[tier.Level]disk.Options
}

func (r *roots) open(t testing.TB, dir string, o disk.Options) tier.Level {
	l, err := disk.Open(dir, o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	r.dirs[l], r.o[l] = dir, o
	return l
}

// TestLevel: everything that package tier pins.
func TestLevel(t *testing.T) {
	r := &roots{map[tier.Level]string{}, map[tier.Level]disk.Options{}}
	tiertest.Level(t, tiertest.Options{
		Open: func(t testing.TB, capacity int64) tier.Level {
			return r.open(t, t.TempDir(), disk.Options{Capacity: capacity})
		},
		Reopen: func(t testing.TB, closed tier.Level) tier.Level {
			return r.open(t, r.dirs[closed], r.o[closed])
		},
		Kill: func(t testing.TB, l tier.Level) tier.Level {
			// The files as they are, without the lock.
			dir := t.TempDir()
			require.NoError(t, os.CopyFS(dir, os.DirFS(r.dirs[l])))
			return r.open(t, dir, r.o[l])
		},
		Damage: func(t testing.TB, l tier.Level, k tier.Key) {
			p, err := disk.Native{}.Path(k)
			require.NoError(t, err)
			name := filepath.Join(r.dirs[l], p)
			b, err := os.ReadFile(name)
			require.NoError(t, err)
			b[len(b)-1] ^= 1
			require.NoError(t, os.WriteFile(name, b, 0o600))
		},
	})
}

// TestSharedLevel: the same of a root that others might write as well, where no answer comes from the index
// alone.
func TestSharedLevel(t *testing.T) {
	r := &roots{map[tier.Level]string{}, map[tier.Level]disk.Options{}}
	tiertest.Level(t, tiertest.Options{
		Open: func(t testing.TB, capacity int64) tier.Level {
			return r.open(t, t.TempDir(), disk.Options{Capacity: capacity, Shared: true, MinAge: 1,
				Sync: disk.SyncNever})
		},
		Reopen: func(t testing.TB, closed tier.Level) tier.Level {
			return r.open(t, r.dirs[closed], r.o[closed])
		},
		Histories: 3,
	})
}
