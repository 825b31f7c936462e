//go:build linux

package blake3

import (
	"os"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A file is cut short while its mapping is hashed. Whether a fault is a panic is a setting of the
// caller's goroutine, which helpers don't have: one that faults must not end the process.
func TestTruncatedFileFaultsInItsCaller(t *testing.T) {
	procs(t, 4)
	path := t.TempDir() + "/file"
	require.NoError(t, os.WriteFile(path, pattern(parallelLen), 0o600))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	m, err := unix.Mmap(int(f.Fd()), 0, parallelLen, unix.PROT_READ, unix.MAP_SHARED)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(m)) }()
	require.NoError(t, f.Truncate(parallelLen/2))

	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	for range 50 {
		var c crew
		tree := tree{mode: plain()}
		require.Panics(t, func() { tree.addParallel(m, &c) })
		require.Zero(t, tree.groups, "nothing is done")
		for c.working.Load() > 0 { // helpers that started late
			unix.Getpid()
		}
	}

	require.NoError(t, f.Truncate(parallelLen))
	tree := tree{mode: plain()}
	require.True(t, tree.addParallel(m, new(crew)), "the memory is back")
}
