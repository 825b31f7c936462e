package shmfile

import (
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckSpaceCreatesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	err := CheckSpace(path, math.MaxInt64)
	var space *SpaceError
	require.ErrorAs(t, err, &space)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Equal(t, path, space.Path)
	require.Equal(t, int64(math.MaxInt64), space.Need)
	require.Positive(t, space.Have)
	require.LessOrEqual(t, space.Have, space.Size)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)

	// An existing file is the better reason.
	require.NoError(t, os.WriteFile(path, []byte("mine"), 0o600))
	for name, size := range map[string]int64{"small": 1, "too large": math.MaxInt64} {
		t.Run(name, func(t *testing.T) { require.ErrorIs(t, CheckSpace(path, size), fs.ErrExist) })
	}
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "mine", string(b))

	_, err = CreateUnnamed(filepath.Join(dir, "none"), 1)
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = CreateUnnamed(dir, math.MaxInt64)
	require.ErrorAs(t, err, &space)
	require.NoError(t, CheckSpace(filepath.Join(dir, "y"), 4096))
	require.ErrorAs(t, CheckSpace(filepath.Join(dir, "y"), math.MaxInt64), &space)
}

func TestAllocateLeavesTheFileEmpty(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "x"))
	require.NoError(t, err)
	defer f.Close()
	err = allocate(f, math.MaxInt64)
	require.ErrorIs(t, err, syscall.ENOSPC)
	st, err := f.Stat()
	require.NoError(t, err)
	require.Zero(t, st.Size())
}
