package shmring

import (
	"fmt"
	"iter"

	"github.com/ringcache/ringcache/internal/mem"
)

// RingOptions configure a [Ring]. The zero value gives vLLM's addresses and ids.
type RingOptions struct {
	// Align makes the offset of every chunk in the segment a multiple of Align bytes, a
	// power of two of at least HeaderSize. 0 packs chunks without gaps, as vLLM does.
	// Readers accept both.
	Align int
	// DataOffset is the number of bytes of the segment in front of the ring, which Align
	// takes into account.
	DataOffset int
	// FirstID is the id of the first chunk.
	FirstID uint32
	// IDsRestart makes Clear start the ids at 0 again, as vLLM does before 0.32. An old
	// handle can then match a new chunk.
	IDsRestart bool
}

// Validate reports what is wrong with the options.
func (o RingOptions) Validate() error {
	switch {
	case o.Align != 0 && (o.Align < HeaderSize || o.Align&(o.Align-1) != 0):
		return fmt.Errorf("%w: Align %d, want 0 or a power of two of at least %d", errInvalid, o.Align, HeaderSize)
	case o.DataOffset < 0:
		return fmt.Errorf("%w: DataOffset %d is negative", errInvalid, o.DataOffset)
	case o.FirstID >= IDLimit:
		return fmt.Errorf("%w: FirstID %d is not below 2^31", errInvalid, o.FirstID)
	}
	return nil
}

// Ring allocates chunks in a byte slice and frees them in the order of their allocation.
//
// Addresses are logical: they run on over the end of the memory into a second
// lap, so that 0 <= address < 2*Size. The chunk lies at address modulo Size and
// never across the end.
//
// Between calls ([Ring.CheckStructure]):
//   - the live chunks are those with ids idStart, idStart+1, ... up to but not
//     including idEnd, modulo IDLimit, each with an entry in live;
//   - their addresses modulo Size are in ring order, don't overlap, and lie in
//     [start, end);
//   - start is the address of the oldest one, give or take whole laps and the
//     gap in front of the first chunk after a reset;
//   - start = end = 0 when none is live; start < Size.
type Ring struct {
	buf []byte
	opt RingOptions

	start, end     uint64
	idStart, idEnd uint32
	live           map[uint32]extent // with their sizes: those in memory can be written by anyone who maps it
	stale          staleHeaders
}

// extent is the place of a live chunk. The size is not read back from memory, since others
// can write there.
type extent struct {
	address uint64
	size    int
}

// NewRing makes an empty ring over buf, which it does not clear. It panics if the options are
// invalid ([RingOptions.Validate]) or buf has no room for a chunk.
func NewRing(buf []byte, o RingOptions) *Ring {
	if err := o.Validate(); err != nil {
		panic(err)
	}
	if len(buf) <= HeaderSize {
		panic(fmt.Sprintf("shmring: a ring of %d bytes has no room for a chunk", len(buf)))
	}
	if o.Align == 0 {
		o.Align = 1
	}
	return &Ring{
		buf: buf, opt: o, idStart: o.FirstID, idEnd: o.FirstID,
		live: map[uint32]extent{}, stale: staleHeaders{},
	}
}

// Size returns the bytes of the ring.
func (r *Ring) Size() int { return len(r.buf) }

// Len returns the number of live chunks.
func (r *Ring) Len() int { return len(r.live) }

// Used returns the bytes from the oldest chunk to the end of the newest, with
// the padding between them.
func (r *Ring) Used() uint64 { return r.end - r.start }

// Alloc allocates a chunk with a payload of size bytes, size > 0, and writes its header. The
// payload contains whatever was there before. Alloc fails with fs.ErrInvalid, [*TooLargeError]
// or [*FullError], and then changes nothing.
func (r *Ring) Alloc(size int) (address uint64, id uint32, payload []byte, err error) {
	if size <= 0 {
		return 0, 0, nil, fmt.Errorf("%w: allocation of %d bytes, want at least 1", errInvalid, size)
	}
	n := uint64(len(r.buf))
	first := r.firstOffset()
	if limit := min(n-min(n, first), MaxChunk); uint64(size) > limit-min(limit, HeaderSize) {
		return 0, 0, nil, &TooLargeError{Need: size + HeaderSize, Limit: int(limit)}
	}
	s := uint64(size) + HeaderSize

	lap, off := r.end/n*n, r.alignUp(r.end%n)
	if off+s > n {
		lap, off = lap+n, first
	}
	at := lap + off
	if at+s-r.start > n {
		return 0, 0, nil, &FullError{Need: int(s), Used: r.Used(), Size: len(r.buf)}
	}

	id = r.idEnd
	// The header goes first, so that a stale handle to this place fails before a byte of
	// the payload changes.
	mem.Store32(r.buf[off:], id)
	mem.Store32(r.buf[off+sizeOffset:], uint32(s))
	r.stale.kill(r.buf, off, s)
	mem.Fence()

	r.live[id] = extent{at, int(s)}
	r.end = at + s
	r.idEnd = nextID(id)
	return at, id, r.buf[off+HeaderSize : off+s : off+s], nil
}

// Free frees chunks, oldest first, until isFree returns false for one, none is left, or at
// least limit bytes were freed. It returns the freed ids in order. A limit of 0 or less frees
// nothing; vLLM's default is [Ring.Size].
func (r *Ring) Free(isFree func(id uint32, payload []byte) bool, limit int) []uint32 {
	var freed []uint32
	n := uint64(len(r.buf))
	for bytes := 0; bytes < limit; {
		x, ok := r.live[r.idStart]
		if !ok {
			break
		}
		p := x.address % n
		if !isFree(r.idStart, r.buf[p+HeaderSize:p+uint64(x.size):p+uint64(x.size)]) {
			break
		}
		freed = append(freed, r.idStart)
		bytes += x.size
		delete(r.live, r.idStart)
		r.stale.add(p)
		r.idStart = nextID(r.idStart)
		if next, ok := r.live[r.idStart]; ok {
			// Addresses are not rebased below, so only differences modulo n count.
			r.start += (next.address%n + n - r.start%n) % n
		} else {
			r.start, r.end = 0, 0
		}
	}
	if r.start >= n {
		r.start -= n
		r.end -= n
	}
	return freed
}

// Clear frees every chunk. The bytes stay until they are overwritten, and until then a handle
// from before can still be read.
func (r *Ring) Clear() {
	for _, x := range r.live {
		r.stale.add(x.address % uint64(len(r.buf)))
	}
	clear(r.live)
	r.start, r.end = 0, 0
	if r.opt.IDsRestart {
		r.idEnd = 0
	}
	r.idStart = r.idEnd
}

// RingState is the position of a [Ring].
type RingState struct {
	Start, End     uint64 // addresses of the oldest chunk and of the end of the newest
	IDStart, IDEnd uint32 // ids of the oldest chunk and of the next one to be allocated
}

// State returns the position of the ring.
func (r *Ring) State() RingState { return RingState{r.start, r.end, r.idStart, r.idEnd} }

// Live yields the id and the logical address of every live chunk, oldest first.
func (r *Ring) Live() iter.Seq2[uint32, uint64] {
	return func(yield func(uint32, uint64) bool) {
		for id := r.idStart; id != r.idEnd; id = nextID(id) {
			if !yield(id, r.live[id].address) {
				return
			}
		}
	}
}

func nextID(id uint32) uint32 { return (id + 1) % IDLimit }

func (r *Ring) alignUp(off uint64) uint64 {
	a := uint64(r.opt.Align)
	base := uint64(r.opt.DataOffset)
	return (base+off+a-1)&^(a-1) - base
}

// firstOffset is the lowest offset at which a chunk may begin.
func (r *Ring) firstOffset() uint64 { return r.alignUp(0) }
