package memory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	faults "github.com/ringcache/ringcache/fuzz/fault"
	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/shmfile"
)

// mapped returns a new file of allocated shared memory, mapped, and without a
// name.
func mapped(t *testing.T, size, prot int) (*os.File, []byte) {
	t.Helper()
	fd, err := unix.MemfdCreate("ringcache-test", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	f := os.NewFile(uintptr(fd), "memfd")
	require.NoError(t, unix.Fallocate(fd, 0, 0, int64(size)))
	b, err := unix.Mmap(fd, 0, size, prot, unix.MAP_SHARED)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, unix.Munmap(b))
		require.NoError(t, f.Close())
	})
	return f, b
}

const readWrite = unix.PROT_READ | unix.PROT_WRITE

// methods are all the ways to populate.
var methods = map[string]func([]byte) error{"madvise": populate, "touch": touch}

// refusing is a madvise that fails with e.
func refusing(e error) func([]byte, int) error { return func([]byte, int) error { return e } }

func TestPrefaultMapsAllPages(t *testing.T) {
	const size = 3*piece + 5*4096 + 3 // the last page has less than a word
	for name, method := range methods {
		for access, prot := range map[string]int{"read and write": readWrite, "read": unix.PROT_READ} {
			for _, workers := range []int{0, 1, 3, 100} {
				t.Run(fmt.Sprintf("%s, %s, %d workers", name, access, workers), func(t *testing.T) {
					_, b := mapped(t, size, prot)
					before, err := resident(b)
					require.NoError(t, err)
					require.Zero(t, before, "allocated is not touched")
					m, err := inspect(b)
					require.NoError(t, err)
					require.Zero(t, m.Mapped)

					var seen, totals []int64 // the race detector watches
					require.NoError(t, prefaultBy(t.Context(), b, workers, func(done, total int64) {
						seen, totals = append(seen, done), append(totals, total)
					}, method))
					require.Len(t, seen, 4)
					require.IsIncreasing(t, seen)
					require.Equal(t, int64(size), seen[3])
					require.Equal(t, slices.Repeat([]int64{size}, 4), totals)

					lo, hi := pageRange(b)
					after, err := resident(b)
					require.NoError(t, err)
					require.Equal(t, int64(hi-lo), after)
					m, err = inspect(b)
					require.NoError(t, err)
					require.Equal(t, int64(hi-lo), m.Size)
					// A kernel that reclaims ahead of need unmaps pages at any time, a few of them.
					for range 100 {
						if m.Mapped == int64(hi-lo) {
							break
						}
						require.Less(t, int64(hi-lo)-m.Mapped, int64(hi-lo)/8, "not mapped")
						require.NoError(t, prefaultBy(t.Context(), b, workers, nil, method))
						m, err = inspect(b)
						require.NoError(t, err)
					}
					require.Equal(t, int64(hi-lo), m.Mapped)
				})
			}
		}
	}
}

func TestPrefaultKeepsWhatIsWritten(t *testing.T) {
	for name, method := range methods {
		t.Run(name, func(t *testing.T) {
			_, b := mapped(t, 4*piece, readWrite)
			other, err := unix.Mmap(-1, 0, 4096, readWrite, unix.MAP_ANON|unix.MAP_PRIVATE)
			require.NoError(t, err)
			defer func() { require.NoError(t, unix.Munmap(other)) }()
			// Each page has a counter; the writer goes on as long as prefaulting does.
			var stop atomic.Bool
			var wg sync.WaitGroup
			rounds := 0
			write := func(round int) {
				for p := 0; p < len(b); p += 4096 {
					copy(b[p:], fmt.Sprintf("page %d, round %d", p, round))
				}
			}
			write(0)
			wg.Go(func() {
				for !stop.Load() {
					rounds++
					write(rounds)
				}
			})
			err = prefaultBy(t.Context(), b, 2, nil, method)
			stop.Store(true)
			wg.Wait()
			require.NoError(t, err)
			want := make([]byte, 4096)
			for p := 0; p < len(b); p += 4096 {
				clear(want)
				for r := max(0, rounds-3); r <= rounds; r++ { // a longer number stays longer
					copy(want, fmt.Sprintf("page %d, round %d", p, r))
				}
				require.True(t, bytes.Equal(want, b[p:p+4096]), "page %d, round %d: %.40q", p, rounds, b[p:])
			}
		})
	}
}

func TestPrefaultIsCancelled(t *testing.T) {
	boom := errors.New("boom")
	_, b := mapped(t, 6*piece, readWrite)
	// The bubble fails if a goroutine is left.
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		calls := 0
		err := prefault(ctx, b, 2, func(done, _ int64) {
			calls++
			cancel(boom)
		})
		require.ErrorIs(t, err, boom)
		require.LessOrEqual(t, calls, 2, "the pieces in work are the last")

		calls = 0
		require.ErrorIs(t, prefault(ctx, b, 2, func(_, _ int64) { calls++ }), boom)
		require.Zero(t, calls)
	})
	synctest.Test(t, func(t *testing.T) {
		n := 0
		err := prefaultBy(t.Context(), b, 1, nil, func([]byte) error {
			if n++; n == 3 {
				return unix.ENOMEM
			}
			return nil
		})
		require.ErrorIs(t, err, unix.ENOMEM)
		require.Equal(t, 3, n)
	})
}

func TestPrefaultOfTruncatedFileIsAnError(t *testing.T) {
	f, b := mapped(t, 2*piece, readWrite)
	require.NoError(t, f.Truncate(piece+4096))
	for method, want := range map[string]error{"madvise": unix.EFAULT, "touch": fault.ErrFault} {
		err := prefaultBy(t.Context(), b, 2, nil, methods[method])
		require.ErrorIs(t, err, want)
		require.ErrorContains(t, err, "cut short")
	}
}

// TestPrefaultOfAFullFileSystemIsAnError: CheckRoom looks earlier, so others can take the room of
// the holes meanwhile.
func TestPrefaultOfAFullFileSystemIsAnError(t *testing.T) {
	if !faults.InChild(t, faults.OwnMounts()) {
		return
	}
	const size = 24 << 20
	dir := t.TempDir()
	faults.Mount(t, dir, "size=32m")
	for name, method := range methods {
		f, err := os.Create(filepath.Join(dir, "holes"))
		require.NoError(t, err)
		require.NoError(t, f.Truncate(size))
		b, err := unix.Mmap(int(f.Fd()), 0, size, readWrite, unix.MAP_SHARED)
		require.NoError(t, err)
		b[size-1] = 7
		other, err := os.Create(filepath.Join(dir, "other"))
		require.NoError(t, err)
		require.NoError(t, unix.Fallocate(int(other.Fd()), 0, 0, 16<<20))

		err = prefaultBy(t.Context(), b, 2, nil, method)
		require.ErrorContains(t, err, "its file system is full", name)
		require.Equal(t, byte(7), b[size-1])

		require.NoError(t, other.Truncate(0))
		require.NoError(t, prefaultBy(t.Context(), b, 2, nil, method), name)
		require.Equal(t, byte(7), b[size-1])
		n, err := resident(b)
		require.NoError(t, err)
		require.Equal(t, int64(size), n)
		require.NoError(t, errors.Join(unix.Munmap(b), f.Close(), os.Remove(f.Name()), other.Close(), os.Remove(other.Name())))
	}
}

func TestPrefaultFallsBackToTouching(t *testing.T) {
	for _, e := range []error{unix.EINVAL, unix.ENOSYS, unix.EPERM} {
		_, b := mapped(t, 1<<20, readWrite)
		require.NoError(t, prefaultBy(t.Context(), b, 2, nil, func(b []byte) error { return populateBy(b, refusing(e)) }))
		n, err := resident(b)
		require.NoError(t, err)
		require.Equal(t, int64(len(b)), n, e)
	}
	_, b := mapped(t, 1<<20, readWrite)
	// The kernel refuses an address inside of a page.
	require.ErrorIs(t, unix.Madvise(b[8:], unix.MADV_POPULATE_WRITE), unix.EINVAL)
	require.NoError(t, prefault(t.Context(), b[8:], 1, nil))
	n, err := resident(b)
	require.NoError(t, err)
	require.Equal(t, int64(len(b)), n)
}

// TestPrefaultReportsLackOfMemory: an error that is no lack of support does not fall back.
func TestPrefaultReportsLackOfMemory(t *testing.T) {
	_, b := mapped(t, 1<<20, readWrite)
	err := prefaultBy(t.Context(), b, 2, nil, func(b []byte) error { return populateBy(b, refusing(unix.ENOMEM)) })
	require.ErrorIs(t, err, unix.ENOMEM)
	require.ErrorContains(t, err, "memory limit")
	n, err := resident(b)
	require.NoError(t, err)
	require.Zero(t, n)
}

func TestLockIsSeen(t *testing.T) {
	_, b := mapped(t, 64<<10, readWrite) // less than any usual RLIMIT_MEMLOCK
	m, err := inspect(b)
	require.NoError(t, err)
	require.Zero(t, m.Locked)
	require.Zero(t, m.NoDump)
	if err := lock(b); err != nil {
		t.Skip(err)
	}
	require.NoError(t, unix.Madvise(b, unix.MADV_DONTDUMP))
	m, err = inspect(b)
	require.NoError(t, err)
	require.Equal(t, mapping{Size: 64 << 10, Mapped: 64 << 10, Locked: 64 << 10, NoDump: 64 << 10}, m)
}

func TestCollapseKeepsContents(t *testing.T) {
	h := readHugeSettings(os.DirFS("/"), shmfile.Mount{})
	if h.PageSize == 0 {
		t.Skip("no transparent huge pages here")
	}
	_, b := mapped(t, 16<<20, readWrite)
	for i := range b {
		b[i] = byte(i >> 10)
	}
	want := bytes.Clone(b)
	err := collapse(t.Context(), b, h.PageSize)
	m, err2 := inspect(b)
	require.NoError(t, err2)
	t.Logf("huge: %d of %d bytes, error %v", m.Huge, len(b), err)
	require.True(t, bytes.Equal(want, b))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := collapse(ctx, b, h.PageSize); err == nil || !errors.Is(err, unix.EINVAL) {
		require.ErrorIs(t, err, context.Canceled)
	}
}
