//go:build linux

package check_test

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// identify makes a sidecar that of the segment at a path.
func identify(t testing.TB, control []byte, segment string) {
	t.Helper()
	st, err := os.Stat(segment)
	require.NoError(t, err)
	sys := st.Sys().(*syscall.Stat_t)
	binary.LittleEndian.PutUint64(control[40:], sys.Ino)
	binary.LittleEndian.PutUint64(control[48:], sys.Dev)
	seal(control[:156])
}

// seal makes the checksum at the end of b that of what is in front.
func seal(b []byte) {
	n := len(b) - 4
	binary.LittleEndian.PutUint32(b[n:], sum(b[:n]))
}

func sum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }
