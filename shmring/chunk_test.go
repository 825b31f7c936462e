package shmring

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/corpus"
	"github.com/ringcache/ringcache/internal/mem"
)

func TestReadChunkBelievesNothing(t *testing.T) {
	header := func(off int, size uint32) []byte {
		b := make([]byte, 64)
		b[off] = 7
		b[off+4], b[off+5], b[off+6], b[off+7] = byte(size), byte(size>>8), byte(size>>16), byte(size>>24)
		return b
	}
	for name, c := range map[string]struct {
		ring    []byte
		address uint64
		want    CorruptError
	}{
		"size 0":           {header(0, 0), 0, CorruptError{0, "size field", 0, "8 to 64"}},
		"size 7":           {header(0, 7), 0, CorruptError{0, "size field", 7, "8 to 64"}},
		"negative":         {header(0, 0xffffffff), 0, CorruptError{0, "size field", -1, "8 to 64"}},
		"most negative":    {header(0, 0x80000000), 0, CorruptError{0, "size field", math.MinInt32, "8 to 64"}},
		"past the end":     {header(0, 65), 0, CorruptError{0, "size field", 65, "8 to 64"}},
		"past from middle": {header(40, 25), 40 + 64*3, CorruptError{40, "size field", 25, "8 to 24"}},
		"largest":          {header(0, 0x7fffffff), 0, CorruptError{0, "size field", math.MaxInt32, "8 to 64"}},
		"no header":        {header(0, 20), 57, CorruptError{57, "bytes left for the header", 7, "8 or more"}},
		"address 2^64-1":   {header(0, 20), math.MaxUint64, CorruptError{63, "bytes left for the header", 1, "8 or more"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadChunk(c.ring, c.address)
			var corrupt *CorruptError
			require.ErrorAs(t, err, &corrupt)
			require.Equal(t, c.want, *corrupt)
			require.ErrorIs(t, err, ErrCorrupt)
		})
	}
	c, err := ReadChunk(header(40, 24), 40+64*3)
	require.NoError(t, err)
	require.Equal(t, uint32(7), c.ID)
	require.Len(t, c.Payload, 16)
	require.Equal(t, 16, cap(c.Payload), "can't be appended into the next chunk")
}

// FuzzReadChunk: any memory, any address: a chunk inside the memory or an error.
func FuzzReadChunk(f *testing.F) {
	corpus.Add(f, "chunk")
	f.Add([]byte{1, 0, 0, 0, 12, 0, 0, 0, 1, 2, 3, 4}, uint64(12))
	f.Add([]byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1}, uint64(9))
	f.Add([]byte{1, 0, 0}, uint64(math.MaxUint64))
	f.Fuzz(func(t *testing.T, ring []byte, address uint64) {
		if len(ring) == 0 {
			return
		}
		c, err := ReadChunk(ring, address)
		require.Equal(t, address, c.Address)
		p := int(address % uint64(len(ring)))
		if p+4 <= len(ring)-4 {
			require.Equal(t, mem.Load32(ring[p:]), c.ID)
		} else {
			require.Equal(t, uint32(DeadID), c.ID, "no room for a header")
		}
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
			return
		}
		require.Equal(t, c.Size, len(c.Payload)+HeaderSize)
		require.LessOrEqual(t, p+c.Size, len(ring))
	})
}
