//go:build linux

package objtest

import (
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Handle is what a file of testdata has of a handle.
type Handle struct {
	Address   uint64
	ID        uint32
	Signature []byte
}

// Left puts what a writer left when it was killed into a folder of its own, as the segment s: the
// files sidecar-RELEASE of a folder testdata. layout is the version of the sidecar.
func Left(t testing.TB, testdata, release string) (dir string, handles map[string]Handle, layout int) {
	t.Helper()
	dir = t.TempDir()
	from := filepath.Join(testdata, "sidecar-"+release)
	layout = Unpack(t, from, filepath.Join(dir, "s"))
	b, err := os.ReadFile(from + ".json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &handles))
	return dir, handles, layout
}

// Unpack makes a segment of the file from.gz and its sidecar of from.ctl.gz, and returns the version
// of the sidecar. Only the segment's inode, and so its identity in the sidecar, is another then.
func Unpack(t testing.TB, from, segment string) (layout int) {
	t.Helper()
	require.NoError(t, os.WriteFile(segment, unzip(t, from+".gz"), 0o600))
	st, err := os.Stat(segment)
	require.NoError(t, err)
	control := unzip(t, from+".ctl.gz")
	sys := st.Sys().(*syscall.Stat_t)
	binary.LittleEndian.PutUint64(control[40:], sys.Ino)
	binary.LittleEndian.PutUint64(control[48:], sys.Dev)
	binary.LittleEndian.PutUint32(control[152:], crc32.Checksum(control[:152], crc32.MakeTable(crc32.Castagnoli)))
	require.NoError(t, os.WriteFile(segment+".ctl", control, 0o600))
	return int(binary.LittleEndian.Uint32(control[8:]))
}

func unzip(t testing.TB, name string) []byte {
	t.Helper()
	f, err := os.Open(name)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	b, err := io.ReadAll(z)
	require.NoError(t, err)
	return b
}
