//go:build linux

package memory

import (
	"context"
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ringcache/ringcache/internal/shmfile"
)

var prefaultMiB = flag.Int("prefault.mib", 1024, "size of the segment of BenchmarkPrefault in MiB")

// BenchmarkPrefault maps the pages of a segment as creation leaves it: allocated and never
// touched. It compares prefault with a loop that writes a byte to each page, and with one thread
// that has the kernel populate the whole mapping. "create" is the allocation. The files have no
// names, so that a benchmark that is killed leaves no memory taken.
func BenchmarkPrefault(b *testing.B) {
	size := *prefaultMiB << 20
	create := func(b *testing.B) *os.File {
		f, err := shmfile.CreateUnnamed(shmfile.DefaultDir, int64(size))
		require.NoError(b, err)
		return f
	}
	for _, way := range []struct {
		name string
		run  func(ctx context.Context, m []byte) error
	}{
		{"touch", func(_ context.Context, m []byte) error {
			for i := 0; i < len(m); i += os.Getpagesize() {
				m[i] = 0
			}
			return nil
		}},
		{"one-thread", func(_ context.Context, m []byte) error { return madvise(m, unix.MADV_POPULATE_WRITE) }},
		{"prefault", func(ctx context.Context, m []byte) error {
			return prefault(ctx, m, 0, func(_, _ int64) {})
		}},
	} {
		b.Run(way.name, func(b *testing.B) {
			b.SetBytes(int64(size))
			for b.Loop() {
				b.StopTimer()
				f := create(b)
				m, err := shmfile.Map(f, int64(size), true)
				require.NoError(b, err)
				b.StartTimer()
				err = way.run(b.Context(), m)
				b.StopTimer()
				require.NoError(b, err)
				require.NoError(b, shmfile.Unmap(m))
				require.NoError(b, f.Close())
				b.StartTimer()
			}
		})
	}
	b.Run("create", func(b *testing.B) {
		b.SetBytes(int64(size))
		for b.Loop() {
			f := create(b)
			b.StopTimer()
			require.NoError(b, f.Close())
			b.StartTimer()
		}
	})
}
