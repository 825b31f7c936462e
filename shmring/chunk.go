package shmring

import (
	"fmt"
	"math"

	"github.com/ringcache/ringcache/internal/mem"
)

// A chunk, little-endian, at any byte offset (shm_object_storage.py, 0.11.0 to
// 0.33.0):
//
//	offset  bytes  field
//	0       4      id, int32, 0 to 2^31-1
//	4       4      size of the chunk in bytes, int32, these 8 included
//	8       ...    payload
const (
	// HeaderSize is the number of bytes in front of a payload.
	HeaderSize = 8
	// IDLimit is the first id that is not used; ids go on at 0 from there.
	IDLimit = 1 << 31
	// MaxChunk is the largest chunk in bytes, with its header: the size field
	// is an int32.
	MaxChunk = math.MaxInt32

	sizeOffset = 4
	// DeadID is in the header of a chunk of a [Pool] that is to be freed or was freed, and,
	// in a [Ring], where headers of freed chunks were. No handle matches it.
	DeadID = math.MaxUint32
	// GoneID is in the header of a chunk of a [Pool] that is not published yet, and in
	// scrubbed memory. A reader that holds a chunk may find DeadID for a moment, while the
	// writer looks for holds; GoneID means to every reader that the chunk is gone.
	GoneID = DeadID - 1
)

// Chunk is one chunk as its header in memory, or a table of chunks, describes it.
type Chunk struct {
	Address uint64
	ID      uint32
	Size    int    // bytes with the header
	Payload []byte // Size-HeaderSize bytes of the ring; nil from and to Restore
}

// ReadChunk reads the chunk at a logical address of a ring or a pool. It fails with a
// [*CorruptError] if the header, or the chunk that the header describes, is not inside the
// ring. The caller compares the ID, which is also there with an error; where there is no room for
// a header, it is [DeadID].
func ReadChunk(ring []byte, address uint64) (Chunk, error) {
	p := address % uint64(len(ring))
	if uint64(len(ring))-p < HeaderSize {
		return Chunk{Address: address, ID: DeadID}, &CorruptError{
			Offset: p, What: "bytes left for the header", Got: int64(uint64(len(ring)) - p), Want: "8 or more",
		}
	}
	c := Chunk{Address: address, ID: mem.Load32(ring[p:])}
	size := int64(int32(mem.Load32(ring[p+sizeOffset:])))
	if size < HeaderSize || uint64(size) > uint64(len(ring))-p {
		return c, &CorruptError{
			Offset: p, What: "size field", Got: size, Want: fmt.Sprintf("8 to %d", uint64(len(ring))-p),
		}
	}
	end := p + uint64(size)
	c.Size, c.Payload = int(size), ring[p+HeaderSize:end:end]
	return c, nil
}
