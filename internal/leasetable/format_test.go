//go:build linux

package leasetable

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/sidecar"
)

// The bytes of a table are those of docs/format.md, whose numbers stand here once more.
func TestFormatIsTheDocuments(t *testing.T) {
	dir := t.TempDir()
	x := create(t, dir, Options{Leases: 2, Items: 2, Generation: 0x1122334455667788, Caution: time.Unix(0, 99)})
	_, err := x.PutLease(Lease{Serial: 7, ID: "id", Owner: "owner", Until: 1234})
	require.NoError(t, err)
	place, err := x.PutItem(Item{Serial: 7, Reserved: true, Record: sidecar.Record{Address: 64, ID: 9, Size: 500, DescriptionOffset: 56, DescriptionLength: 40, Sum: 3}})
	require.NoError(t, err)
	_, err = x.PutItem(Item{Serial: 7, Record: sidecar.Record{ID: 10}})
	require.NoError(t, err)

	le := binary.LittleEndian
	sum := func(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }
	mark := func(b, body []byte) {
		le.PutUint32(b, sum(body))
		le.PutUint32(b[4:], ^sum(body))
	}
	want := make([]byte, 4096+2*576+2*64)
	copy(want, "RINGLSE\x00")
	le.PutUint32(want[8:], 1)
	le.PutUint32(want[12:], 2)
	le.PutUint32(want[16:], 2)
	le.PutUint64(want[24:], 0x1122334455667788)
	le.PutUint64(want[32:], 99)
	le.PutUint32(want[40:], sum(want[:40]))
	l := want[4096:]
	le.PutUint64(l[8:], 7)
	le.PutUint64(l[16:], 1)
	le.PutUint64(l[24:], 1234)
	l[32], l[33] = 2, 5
	copy(l[34:], "idowner")
	mark(l, l[8:544])
	copy(l[576:], "FREEFREE")
	i := l[2*576:]
	le.PutUint64(i[8:], 7)
	le.PutUint64(i[16:], 64)
	le.PutUint32(i[24:], 9)
	le.PutUint32(i[28:], 500)
	le.PutUint32(i[32:], 56)
	le.PutUint32(i[36:], 40)
	le.PutUint32(i[40:], 3)
	copy(i[48:], "RSVDRSVD")
	mark(i, i[8:48])
	j := i[64:]
	le.PutUint64(j[8:], 7)
	le.PutUint32(j[24:], 10)
	copy(j[48:], "PINNPINN")
	mark(j, j[8:48])
	got, err := os.ReadFile(filepath.Join(dir, "s.leases"))
	require.NoError(t, err)
	require.Equal(t, want, got)

	x.SetPinned(place)
	copy(i[48:], "PINNPINN")
	got, err = os.ReadFile(filepath.Join(dir, "s.leases"))
	require.NoError(t, err)
	require.Equal(t, want, got)
}
