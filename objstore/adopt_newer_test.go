//go:build linux

package objstore

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/sidecar"
)

// TestNewerSidecarIsRefused: this release refuses the sidecar of a later one, and the error names the version.
func TestNewerSidecarIsRefused(t *testing.T) {
	o := Options{Name: "s", Dir: t.TempDir(), RingSize: 16 << 10, MaxObjectSize: 8 << 10, Readers: 1}
	w, err := pool.create(o)
	require.NoError(t, err)
	require.NoError(t, w.Detach())
	file := filepath.Join(o.Dir, o.Name+sidecar.Suffix)
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	binary.LittleEndian.PutUint32(b[8:], 2)
	require.NoError(t, os.WriteFile(file, b, 0o600))
	_, _, adopting := adoptPool(o)
	_, opening := Open(o.Name, ReaderOptions{Dir: o.Dir, RingSize: o.RingSize, Readers: 1})
	for _, err := range []error{adopting, opening} {
		var bad *sidecar.FormatError
		require.True(t, errors.As(err, &bad) && bad.Newer, "%v", err)
		require.ErrorContains(t, err, "layout version 2, this release reads 1; use the release that made it")
	}
}
