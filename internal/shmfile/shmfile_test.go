package shmfile

import (
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckOwner(t *testing.T) {
	require.NoError(t, checkOwner("x", 0o600, 7, 7))
	require.NoError(t, checkOwner("x", 0o640, 7, 7))
	for name, c := range map[string]struct {
		mode fs.FileMode
		uid  uint32
	}{
		"directory":         {fs.ModeDir | 0o600, 7},
		"socket":            {fs.ModeSocket | 0o600, 7},
		"another user":      {0o600, 8},
		"root's":            {0o600, 0},
		"everyone may":      {0o602, 7},
		"everyone may, 666": {0o666, 7},
	} {
		require.ErrorIs(t, checkOwner("x", c.mode, c.uid, 7), ErrUnsafe, name)
	}
}
