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
		what string
	}{
		"directory":         {fs.ModeDir | 0o600, 7, "x is not a regular file (d"},
		"socket":            {fs.ModeSocket | 0o600, 7, "x is not a regular file (S"},
		"another user":      {0o600, 8, "x belongs to uid 8, this process runs as uid 7"},
		"root's":            {0o600, 0, "x belongs to uid 0, this process runs as uid 7"},
		"everyone may":      {0o602, 7, "x is writable by everyone (mode 0602)"},
		"everyone may, 666": {0o666, 7, "x is writable by everyone (mode 0666)"},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkOwner("x", c.mode, c.uid, 7)
			require.ErrorIs(t, err, ErrUnsafe)
			require.ErrorContains(t, err, c.what)
		})
	}
}
