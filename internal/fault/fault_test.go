//go:build linux

package fault

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestTruncatedMappingIsAnError(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "x"))
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Truncate(1<<16))
	m, err := unix.Mmap(int(f.Fd()), 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(m)) }()
	require.NoError(t, f.Truncate(0))

	require.ErrorIs(t, Guard(func() error { m[5000] = 1; return nil }), ErrFault)
	require.ErrorIs(t, Guard(func() error { copy(make([]byte, 1<<16), m); return nil }), ErrFault, "in memmove")
	other := errors.New("other")
	require.Equal(t, other, Guard(func() error { return other }))
	require.NoError(t, Guard(func() error { return nil }))
	require.PanicsWithValue(t, "mine", func() { _ = Guard(func() error { panic("mine") }) })
	require.Panics(t, func() { _ = Guard(func() error { var s []int; _ = s[len(m)]; return nil }) }, "a bug stays a panic")
}
