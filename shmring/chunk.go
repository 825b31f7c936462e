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
	// DeadID stands in the header of a chunk of a [Pool] to which no handle is good:
	// one that is being written, or was freed. In a [Ring] it stands where headers
	// of freed chunks were.
	DeadID = math.MaxUint32
	// GoneID stands in the header of a chunk of a [Pool] that was just allocated, and
	// in memory that was scrubbed. To a reader that holds a chunk DeadID is as good as
	// the chunk's id, since the writer takes that away for a moment; GoneID is not.
	GoneID = DeadID - 1
)

// Chunk is one chunk as its header in memory describes it.
type Chunk struct {
	ID      uint32
	Size    int    // with the header
	Payload []byte // Size-HeaderSize bytes, pointing into the ring
}

// ReadChunk reads the chunk at a logical address of a ring. It believes
// nothing: a header that does not lie inside the ring is a [CorruptError].
// Whether it is the chunk that was meant is for the caller to see from its ID.
func ReadChunk(ring []byte, address uint64) (Chunk, error) {
	p := address % uint64(len(ring))
	if uint64(len(ring))-p < HeaderSize {
		return Chunk{}, &CorruptError{Offset: p, What: "bytes left for the header", Got: int64(uint64(len(ring)) - p), Want: "8 or more"}
	}
	id := mem.Load32(ring[p:])
	size := int64(int32(mem.Load32(ring[p+sizeOffset:])))
	if size < HeaderSize || uint64(size) > uint64(len(ring))-p {
		return Chunk{}, &CorruptError{Offset: p, What: "size field", Got: size, Want: fmt.Sprintf("8 to %d", uint64(len(ring))-p)}
	}
	end := p + uint64(size)
	return Chunk{ID: id, Size: int(size), Payload: ring[p+HeaderSize : end : end]}, nil
}

// ChunkID reads only the id at a logical address, for a second look after the
// payload was used. ok is false where no header can be.
func ChunkID(ring []byte, address uint64) (id uint32, ok bool) {
	p := address % uint64(len(ring))
	if uint64(len(ring))-p < HeaderSize {
		return 0, false
	}
	return mem.Load32(ring[p:]), true
}

// IDBefore says whether the id a was given out before b. Ids start over after
// 2^31, so of two the one is older from which it is less far to the other.
func IDBefore(a, b uint32) bool { return (b-a)%IDLimit-1 < IDLimit/2 }
