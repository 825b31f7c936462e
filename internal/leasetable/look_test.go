//go:build linux

package leasetable

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/sidecar"
)

// TestLook: leases are read beside their writer, without a change of the file, and what is damaged is no
// lease.
func TestLook(t *testing.T) {
	dir := t.TempDir()
	_, err := Look(dir, "s", 7)
	require.ErrorIs(t, err, fs.ErrNotExist)
	x := create(t, dir, Options{Leases: 4, Items: 4, Generation: 7})
	for _, l := range []Lease{{Serial: 1, ID: "a", Owner: "o", Until: 5}, {Serial: 2, ID: "b"}} {
		_, err := x.PutLease(l)
		require.NoError(t, err)
	}
	for _, it := range []Item{
		{Serial: 1, Record: sidecar.Record{ID: 10}}, {Serial: 1, Reserved: true, Record: sidecar.Record{Address: 64, ID: 11, Size: 100}},
		{Serial: 9, Record: sidecar.Record{ID: 12}}, // of a lease that has ended
	} {
		_, err := x.PutItem(it)
		require.NoError(t, err)
	}
	path, err := Path(dir, "s")
	require.NoError(t, err)
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	all, err := Look(dir, "s", 7)
	require.NoError(t, err)
	require.Equal(t, []*Looked{
		{Lease: Lease{Serial: 1, ID: "a", Owner: "o", Until: 5}, Pinned: []uint32{10}, Reserved: []sidecar.Record{{Address: 64, ID: 11, Size: 100}}},
		{Lease: Lease{Serial: 2, ID: "b"}},
	}, all)
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after)

	_, err = Look(dir, "s", 8)
	require.ErrorIs(t, err, ErrDamaged, "it belongs to another segment")
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	_, err = f.WriteAt([]byte{0xff, 0xff, 0xff}, pageSize+leaseTexts) // of the first record
	require.NoError(t, err)
	all, err = Look(dir, "s", 7)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.NoError(t, os.Truncate(path, 100))
	_, err = Look(dir, "s", 7)
	require.ErrorIs(t, err, ErrDamaged)
	require.NoError(t, os.Truncate(path, int64(len(before))))
	require.NoError(t, os.Remove(filepath.Clean(path)))
}
