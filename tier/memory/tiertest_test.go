//go:build linux

package memory

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
)

// tested are the options by which package tiertest reaches a level.
func tested() tiertest.Options {
	var ahead atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	return tiertest.Options{
		Open: func(t testing.TB, capacity int64) tier.Level {
			if capacity == 0 {
				capacity = 100 << 20
			}
			l, err := Open(Options{
				Name: "level", Dir: t.TempDir(), Size: capacity, MaxObjects: 4096, MaxLeases: 100, MaxPins: 10_000,
				Now: now,
			})
			require.NoError(t, err)
			return l
		},
		Reopen: func(t testing.TB, l tier.Level) tier.Level {
			next, err := Open(l.(*Level).o)
			require.NoError(t, err)
			return next
		},
		Kill:    killed,
		At:      at,
		Now:     now,
		Advance: func(d time.Duration) { ahead.Add(int64(d)) },
	}
}

// killed opens a copy of what a level has at this moment, since its own process lives on.
func killed(t testing.TB, l tier.Level) tier.Level {
	t.Helper()
	o := l.(*Level).o
	from := o.Dir
	o.Dir = t.TempDir()
	for _, name := range []string{o.Name, o.Name + ".ctl", o.Name + ".leases"} {
		b, err := os.ReadFile(filepath.Join(from, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(o.Dir, name), b, 0o600))
	}
	var st unix.Stat_t
	require.NoError(t, unix.Stat(filepath.Join(o.Dir, o.Name), &st))
	f, err := os.OpenFile(filepath.Join(o.Dir, o.Name+".ctl"), os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	header := make([]byte, 152) // see docs/format.md: the sidecar names the segment's inode
	_, err = f.ReadAt(header, 0)
	require.NoError(t, err)
	binary.LittleEndian.PutUint64(header[40:], st.Ino)
	binary.LittleEndian.PutUint64(header[48:], st.Dev)
	header = binary.LittleEndian.AppendUint32(header, crc32.Checksum(header, crc32.MakeTable(crc32.Castagnoli)))
	_, err = f.WriteAt(header, 0)
	require.NoError(t, err)
	next, err := Open(o)
	require.NoError(t, err)
	return next
}

// at maps the segment as another process does.
func at(t testing.TB, l tier.Level, offset uint64, n int64) []byte {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(l.(*Level).o.Dir, l.(*Level).o.Name), os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, int(l.(*Level).Segment().Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(m)) })
	return m[offset:][:n]
}

func TestLevelKeepsItsPromises(t *testing.T) { tiertest.Level(t, tested()) }

func TestLeasesKeepTheirPromises(t *testing.T) { tiertest.Memory(t, tested()) }
