//go:build linux && (amd64 || arm64)

package futex_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ringcache/ringcache/internal/futex"
)

// A peer may cut the file of a word short: that is an error, not a wait that never ends.
func TestWordThatIsGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "word")
	require.NoError(t, os.WriteFile(path, make([]byte, 32), 0o600))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	m, err := unix.Mmap(int(f.Fd()), 0, 32, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(m)) }()
	_, value := futex.Words(m)
	require.NoError(t, futex.Wait(value, 1, time.Hour), "it has another value")
	require.NoError(t, futex.Wait(value, 0, time.Millisecond))
	require.NoError(t, futex.Wake(value, 1))

	require.NoError(t, f.Truncate(0))
	require.ErrorIs(t, futex.Wait(value, 0, time.Hour), unix.EFAULT)
	require.ErrorIs(t, futex.Wake(value, 1), unix.EFAULT)
}

func TestWordsMustBeAligned(t *testing.T) {
	b := make([]byte, 64)
	require.Panics(t, func() { futex.Words(b[1:]) })
}
