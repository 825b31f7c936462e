package shmring

import (
	"fmt"
	"iter"

	"github.com/ringcache/ringcache/internal/mem"
)

// granule is the least unit of a [Pool] in bytes: chunks begin at multiples of it in
// the segment, so that a chunk's header and count lie in one cache line.
const granule = 64

// PoolOptions are the choices for a [Pool].
type PoolOptions struct {
	// DataOffset is the number of bytes of the segment in front of the pool,
	// which count for the alignment.
	DataOffset int
	// FirstID is the id of the first chunk.
	FirstID uint32
	// Granule is the unit of the pool in bytes, a power of two of at least 64; 0 is 64.
	// Chunks begin at multiples of it in the segment, and take multiples of it.
	Granule int
	// Lead places chunks so many bytes, a multiple of 64, in front of multiples
	// of the unit: what stands there in each is aligned to the unit.
	Lead int
}

// first returns the offset of the first place for a chunk.
func (o PoolOptions) first() uint64 {
	g := o.unit()
	return (g - (uint64(o.DataOffset)+uint64(o.Lead))%g) % g
}

func (o PoolOptions) unit() uint64 { return uint64(max(o.Granule, granule)) }

// room returns the bytes that chunks in size bytes can take, with their headers.
func (o PoolOptions) room(size int) uint64 {
	first := o.first()
	if uint64(size) <= first {
		return 0
	}
	return (uint64(size) - first) / o.unit() * o.unit()
}

// extent returns what a chunk of size payload bytes takes.
func (o PoolOptions) extent(size int) uint64 {
	return (uint64(size) + HeaderSize + o.unit() - 1) / o.unit() * o.unit()
}

// Pool allocates chunks anywhere in a byte slice and frees them in any order.
// A stock reader takes an address, compares the id there and trusts the size,
// so it can't tell a pool from a [Ring].
//
// Holes are kept in segregated lists by size, as in TLSF: allocating and freeing
// take constant time, but for the walk through holes of nearly the same size.
// Neighbouring holes are always merged.
//
// What holds between calls ([Pool.CheckStructure]):
//   - the blocks, by address, cover [first offset, last granule) without gaps;
//   - no two holes are neighbours, and each hole is in the list of its size;
//   - live has every other block; the header in memory has its size, and its
//     id or, before Publish and after Kill, none.
type Pool struct {
	buf    []byte
	opt    PoolOptions
	first  *block
	rover  *block    // where Cheapest goes on
	gone   *block    // blocks for newBlock, by next
	costs  []float64 // of Cheapest, kept for its memory
	live   map[uint32]*block
	last   *block // that was looked up, see block
	holes  holes
	nextID uint32
	used   uint64 // bytes of live blocks
}

// NewPool makes an empty pool over buf, which it does not clear. It panics if
// the options make no sense; they come from code, not from input.
func NewPool(buf []byte, o PoolOptions) *Pool {
	if o.DataOffset < 0 || o.FirstID >= IDLimit || o.Granule != 0 &&
		(o.Granule < granule || o.Granule&(o.Granule-1) != 0) || o.Lead < 0 || o.Lead%granule != 0 {
		panic(fmt.Sprintf("shmring: pool options %+v", o))
	}
	p := &Pool{buf: buf, opt: o, nextID: o.FirstID}
	p.reset()
	return p
}

func (p *Pool) reset() {
	p.live, p.used, p.holes = map[uint32]*block{}, 0, holes{}
	p.first, p.rover, p.gone, p.last = nil, nil, nil, nil
	if n := p.room(); n > 0 {
		p.first = p.newBlock(p.opt.first(), n, nil, nil)
		p.addHole(p.first)
	}
}

func (p *Pool) room() uint64 { return p.opt.room(len(p.buf)) }

// Extent returns the bytes that a chunk with a payload of size bytes takes.
func (p *Pool) Extent(size int) uint64 { return p.opt.extent(size) }

// Len returns the number of chunks.
func (p *Pool) Len() int { return len(p.live) }

// Used returns the bytes that chunks take, rounded up to granules.
func (p *Pool) Used() uint64 { return p.used }

// NextID returns the id that the next chunk will get.
func (p *Pool) NextID() uint32 { return p.nextID }

// Largest returns the bytes of the largest hole, which in an empty pool are all that chunks
// can take. It looks for the hole only if the last one that it found is gone.
func (p *Pool) Largest() uint64 {
	h := &p.holes
	if h.largest == nil {
		for b := h.from(h.last()); b != nil; b = b.bin().next {
			if h.largest == nil || b.len > h.largest.len {
				h.largest = b
			}
		}
	}
	if h.largest == nil {
		return 0
	}
	return h.largest.len
}

// Alloc takes size bytes, size > 0, for the payload of a new chunk. Its header
// gets no valid id before [Pool.Publish], and the payload still holds what was
// there before. Errors are fs.ErrInvalid, [*TooLargeError] and [*FullError]; none
// of them changes anything.
func (p *Pool) Alloc(size int) (address uint64, id uint32, payload []byte, err error) {
	if size <= 0 {
		return 0, 0, nil, fmt.Errorf("%w: allocation of %d bytes, want at least 1", errInvalid, size)
	}
	if limit := min(p.room(), MaxChunk); uint64(size) > limit-min(limit, HeaderSize) {
		return 0, 0, nil, &TooLargeError{Need: size + HeaderSize, Limit: int(limit)}
	}
	n := p.opt.extent(size)
	b := p.holes.find(n)
	if b == nil {
		return 0, 0, nil, &FullError{Need: size + HeaderSize, Used: p.used, Size: len(p.buf)}
	}
	// First, so that nothing is half done if the memory is gone.
	mem.Store32(p.buf[b.off:], GoneID)
	mem.Store32(p.buf[b.off+sizeOffset:], uint32(size+HeaderSize))
	p.removeHole(b)
	p.cut(b, n)
	b.id, b.size = p.freshID(), int32(size+HeaderSize)
	p.live[b.id], p.last = b, b
	p.used += b.len
	return b.off, b.id, p.payload(b), nil
}

// Fits reports whether there is a hole for a payload of size bytes, size > 0. Where there is
// none, Alloc fails with a [*FullError], or a [*TooLargeError].
func (p *Pool) Fits(size int) bool { return p.holes.find(p.opt.extent(size)) != nil }

// Own keeps a value of the caller with a chunk until the chunk is freed. The id must be live.
func (p *Pool) Own(id uint32, owner any) { p.block(id).owner = owner }

// Owner returns what Own was called with, nil if nothing was or the id is not live.
func (p *Pool) Owner(id uint32) any {
	if b := p.block(id); b != nil {
		return b.owner
	}
	return nil
}

// block returns the block of a chunk, nil if the id is not live. Callers use one chunk a few times
// in a row, so the last one is not looked up again.
func (p *Pool) block(id uint32) *block {
	if b := p.last; b != nil && b.id == id && !b.free() {
		return b
	}
	b := p.live[id]
	p.last = b
	return b
}

// Owners yields what Own was called with for each chunk that is live, in no order. Chunks may be
// freed meanwhile.
func (p *Pool) Owners() iter.Seq[any] {
	return func(yield func(any) bool) {
		for _, b := range p.live {
			if b.owner != nil && !yield(b.owner) {
				return
			}
		}
	}
}

// freshID returns the next id that no chunk has. After 2^31 allocations ids
// start over, and chunks may have lived through all of them.
func (p *Pool) freshID() uint32 {
	for p.live[p.nextID] != nil {
		p.nextID = nextID(p.nextID)
	}
	id := p.nextID
	p.nextID = nextID(id)
	return id
}

func (p *Pool) payload(b *block) []byte {
	end := b.off + uint64(b.size)
	return p.buf[b.off+HeaderSize : end : end]
}

// Publish writes the id of a chunk into its header: from now on handles to the chunk are
// valid. Everything that was written to the payload before becomes visible first.
func (p *Pool) Publish(id uint32) {
	mem.Fence()
	mem.Store32(p.buf[p.block(id).off:], id)
}

// Kill replaces the id in the header of a chunk by [DeadID], so that every handle to the
// chunk is stale. Publish reverses it.
func (p *Pool) Kill(id uint32) {
	mem.Store32(p.buf[p.block(id).off:], DeadID)
	mem.Fence()
}

// Free kills the chunk id and frees its bytes. An id that is not live is ignored.
func (p *Pool) Free(id uint32) {
	if p.block(id) == nil {
		return
	}
	p.Kill(id) // memory first: if it is gone, nothing has changed
	p.Release(id)
}

// Release frees the bytes of a chunk that Kill was called for. It does not touch the memory.
// An id that is not live is ignored.
func (p *Pool) Release(id uint32) {
	b := p.block(id)
	if b == nil {
		return
	}
	delete(p.live, id)
	p.used -= b.len
	b.size, b.owner = 0, nil
	if n := b.next; n != nil && n.free() {
		p.removeHole(n)
		p.swallow(b)
	}
	if v := b.prev; v != nil && v.free() {
		p.removeHole(v)
		p.swallow(v)
		b = v
	}
	p.addHole(b)
}

// Live yields the id and the address of every chunk, by address.
func (p *Pool) Live() iter.Seq2[uint32, uint64] {
	return func(yield func(uint32, uint64) bool) {
		for b := p.first; b != nil; b = b.next {
			if !b.free() && !yield(b.id, b.off) {
				return
			}
		}
	}
}
