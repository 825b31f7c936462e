package sidecar

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Inode numbers are unique within a device only: a file of the same number on another mount is another segment.
func TestSidecarOfAFileOnAnotherDevice(t *testing.T) {
	for name, at := range map[string]int{"device": offDevice, "inode": offInode} {
		t.Run(name, func(t *testing.T) {
			f, dir := made(t)
			seg, err := os.Open(filepath.Join(dir, "s"))
			require.NoError(t, err)
			defer func() { require.NoError(t, seg.Close()) }()
			file, err := os.Open(f.Path())
			require.NoError(t, err)
			defer func() { require.NoError(t, file.Close()) }()
			require.True(t, f.Describes(seg))
			require.True(t, Describes(file, seg))

			binary.LittleEndian.PutUint64(f.mem[at:], binary.LittleEndian.Uint64(f.mem[at:])+1)
			require.False(t, f.Describes(seg))
			require.False(t, Describes(file, seg))
		})
	}
}
