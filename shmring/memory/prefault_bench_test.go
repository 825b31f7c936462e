//go:build linux

package memory

import (
	"crypto/rand"
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ringcache/ringcache/internal/shmfile"
)

var prefaultMiB = flag.Int("prefault.mib", 1024, "size of the segment of BenchmarkPrefault in MiB")

// BenchmarkPrefault maps the pages of a segment as creation leaves it: allocated and never
// touched. What it times is Prepare, beside a loop that writes a byte to each page and one
// thread that has the kernel populate the whole mapping. "create" is the allocation.
func BenchmarkPrefault(b *testing.B) {
	size := *prefaultMiB << 20
	touchAll := func(b *testing.B, m []byte, _ string) {
		for i := 0; i < len(m); i += os.Getpagesize() {
			m[i] = 0
		}
	}
	populateAll := func(b *testing.B, m []byte, _ string) {
		require.NoError(b, madvise(m, unix.MADV_POPULATE_WRITE))
	}
	prepare := func(b *testing.B, m []byte, path string) {
		r, err := Prepare(b.Context(), m, path, Options{Prefault: true})
		require.NoError(b, err)
		require.True(b, r.Prefault.Obtained, r)
	}
	create := func(b *testing.B, path string) []byte {
		f, err := shmfile.CreateUnnamed(shmfile.DefaultDir, int64(size))
		require.NoError(b, err)
		defer f.Close()
		require.NoError(b, shmfile.Link(f, path))
		m, err := shmfile.Map(f, int64(size), true)
		require.NoError(b, err)
		return m
	}
	for _, way := range []struct {
		name string
		run  func(b *testing.B, m []byte, path string)
	}{
		{"way=touch", touchAll},
		{"way=one-thread", populateAll},
		{"way=prepare", prepare},
	} {
		b.Run(way.name, func(b *testing.B) {
			b.SetBytes(int64(size))
			path, err := shmfile.Path("", "ringcache-bench-"+rand.Text())
			require.NoError(b, err)
			b.Cleanup(func() { _ = os.Remove(path) })
			for b.Loop() {
				b.StopTimer()
				m := create(b, path)
				b.StartTimer()
				way.run(b, m, path)
				b.StopTimer()
				require.NoError(b, shmfile.Unmap(m))
				require.NoError(b, os.Remove(path))
				b.StartTimer()
			}
		})
	}
	b.Run("create", func(b *testing.B) {
		b.SetBytes(int64(size))
		for b.Loop() {
			f, err := shmfile.CreateUnnamed(shmfile.DefaultDir, int64(size))
			require.NoError(b, err)
			b.StopTimer()
			require.NoError(b, f.Close())
			b.StartTimer()
		}
	})
}
