package ringrules

import (
	"encoding/binary"

	"github.com/ringcache/ringcache/fuzz/model"
)

// HeaderSize is that of a chunk's header in bytes: the id, and the size of the whole chunk.
const HeaderSize = 8

const idLimit = 1 << 31 // ids are below it

// Step is an operation that a ring performed, and how the ring is after it, as an [fuzz.Invariant]
// gets it. It is valid during the call.
type Step struct {
	Op     string // "ring.alloc", "ring.free", "ring.clear"
	Ring   Ring
	Memory []byte
	State  State
	Listed map[uint32]uint64 // by the ring's Live

	// Live are the chunks that have to be live now, oldest first; Stale those that are not any more,
	// as long as their ids stand in memory.
	Live, Stale []Chunk
	// Before is the position before the operation, and WasLive the chunks then.
	Before  State
	WasLive []Chunk

	New          *Chunk // allocated by the operation
	Size         int    // that was asked for
	Refused      error  // why there is no new chunk
	Asked, Freed []uint32

	issued   map[uint32]int // chunks that ever got an id
	stale    error          // found before the payload was filled
	largest  func() int     // payload that an empty ring of this size takes
	expected *expected      // nil without Release
}

// expected is what vLLM does.
type expected struct {
	ring  *model.FIFO
	added *Chunk
	freed []uint32
}

// Chunk is a chunk as the test recorded it.
type Chunk struct {
	Address uint64
	ID      uint32
	Size    int // of the payload in bytes
	// Payload is what the test wrote.
	Payload []byte
}

// Offset returns where the chunk begins in a memory of n bytes.
func (c Chunk) Offset(n int) int { return int(c.Address % uint64(n)) }

// End returns where the chunk ends in a memory of n bytes.
func (c Chunk) End(n int) int { return c.Offset(n) + HeaderSize + c.Size }

// inside reports whether the chunk lies in a memory of n bytes.
func (c Chunk) inside(n int) bool {
	return c.Size >= 0 && c.Size <= n && c.End(n) <= n
}

// header reads what stands at the chunk's place.
func (c Chunk) header(memory []byte) (id, size uint32) {
	p := c.Offset(len(memory))
	return binary.LittleEndian.Uint32(memory[p:]), binary.LittleEndian.Uint32(memory[p+4:])
}

func (c Chunk) payload(memory []byte) []byte {
	return memory[c.Offset(len(memory))+HeaderSize : c.End(len(memory))]
}

// matches reports whether a reader that has the chunk's handle accepts it.
func (c Chunk) matches(memory []byte) bool {
	id, _ := c.header(memory)
	return id == c.ID
}

// byChance reports whether the chunk's id lies across a header of a live chunk: a size or a part of
// an id may equal it, and no ring can prevent that.
func (c Chunk) byChance(s *Step) bool {
	n := len(s.Memory)
	begin := c.Offset(n)
	for _, x := range s.Live {
		if at := x.Offset(n); at != begin && at < begin+4 && begin < at+HeaderSize {
			return true
		}
	}
	return false
}
