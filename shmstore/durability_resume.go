package shmstore

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/internal/payload"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmring"
)

// ReservedChunk is where a reservation is in its segment, and what its description sums up to. A
// reservation has no entry in the sidecar's table. Whoever wants one to outlive the process saves this
// elsewhere, and gives it to the next Adopt, see Options.Reserved. The description was written when the
// room was reserved.
type ReservedChunk struct {
	Address                              uint64 // of the chunk, in the ring
	ID                                   uint32 // for Request.Resume
	Size                                 int    // bytes of the chunk, with its header
	DescriptionOffset, DescriptionLength int    // of the description, in bytes behind the header
	Sum                                  uint32 // CRC-32C of the description
}

// Chunk returns where the reservation is, for the next writer.
func (r *Reservation) Chunk() ReservedChunk {
	c := r.o.record()
	out := ReservedChunk{
		Address: c.Address, ID: c.ID, Size: c.Size,
		DescriptionOffset: c.DescriptionOffset, DescriptionLength: c.DescriptionLength,
	}
	_ = r.r.s.durability.guard(func() error {
		out.Sum = payload.Sum(r.payload[r.front : r.front+c.DescriptionLength])
		return nil
	})
	return out
}

// placeChunks has the allocator take over the chunks of objects, and of those reservations that lie beside
// them. It returns what it took.
func (a *adopter) placeChunks(placed []shmring.Chunk, reservations []ReservedChunk) (
	kept []shmring.Chunk, reserved []ReservedChunk,
) {
	s := a.space
	end := func(c shmring.Chunk) uint64 { return c.Address + uint64(s.extent(c.Size-shmring.HeaderSize)) }
	taken := slices.Clone(placed)
	slices.SortFunc(taken, func(a, b shmring.Chunk) int { return cmp.Compare(a.Address, b.Address) })
	ids := map[uint32]bool{}
	for _, c := range placed {
		ids[c.ID] = true
	}
	least := payload.MinOffset(a.durability.plain)
	for _, r := range reservations {
		size := r.Size - shmring.HeaderSize
		from, n := r.DescriptionOffset, r.DescriptionLength
		if size < least || r.Size > shmring.MaxChunk || r.Address > uint64(s.size) || ids[r.ID] ||
			from < least || from > size || n < payload.MinSize || n > size-from {
			continue // or its id is that of an object: it was committed
		}
		c := shmring.Chunk{Address: r.Address, ID: r.ID, Size: r.Size}
		// Those that end behind its begin: the first must begin behind its end. Bad ones may overlap each other.
		i, _ := slices.BinarySearchFunc(taken, c.Address, func(t shmring.Chunk, a uint64) int { return cmp.Compare(t.Address, a) })
		if i > 0 && end(taken[i-1]) > c.Address || i < len(taken) && taken[i].Address < end(c) {
			continue
		}
		taken = slices.Insert(taken, i, c)
		ids[r.ID] = true
		reserved = append(reserved, r)
		placed = append(placed, c)
		a.passID(r.ID)
	}
	all := s.pool.Restore(placed, a.state.NextID)
	if len(reserved) == 0 {
		return all, nil
	}
	there := map[uint32]bool{}
	for _, c := range all {
		there[c.ID] = true
	}
	reserved = slices.DeleteFunc(reserved, func(r ReservedChunk) bool { return !there[r.ID] })
	apart := map[uint32]bool{}
	for _, r := range reserved {
		apart[r.ID] = true
	}
	return slices.DeleteFunc(all, func(c shmring.Chunk) bool { return apart[c.ID] }), reserved
}

// restoreReserved makes the objects of reservations. Where the description is not what it was, somebody wrote
// behind his payload: his reservation stays, under a key that nobody has.
func (a *adopter) restoreReserved(records []ReservedChunk) {
	d, l := a.durability, a.lifetime
	d.resumable = map[uint32]*Object{}
	ring := d.seg.Ring()
	for _, r := range records {
		o := l.newObject()
		o.state = reserved
		o.setRecord(sidecar.Record{
			Address: r.Address, ID: r.ID, Size: r.Size,
			DescriptionOffset: r.DescriptionOffset, DescriptionLength: r.DescriptionLength,
		})
		// The header, which somebody may have written over: nobody finds the chunk by it.
		mem.Store32(ring[r.Address:], shmring.GoneID)
		mem.Store32(ring[r.Address+4:], uint32(r.Size))
		at := r.Address + shmring.HeaderSize + uint64(r.DescriptionOffset)
		b := ring[at : at+uint64(r.DescriptionLength)]
		text, err := payload.Parse(b)
		if payload.Sum(b) != r.Sum || err != nil || l.index.find(text.Key) != nil || l.pending.find(text.Key) != nil {
			text = payload.Description{Key: fmt.Sprintf("\x00lost\x00%d", r.ID)}
		}
		o.setDescription(text, a.space.families.parentOf != nil)
		l.pending.add(o)
		a.space.own(o)
		d.resumable[r.ID] = o
	}
}

// Resume makes a reservation of Options.Reserved one of the request. The error is [ErrStale] if Adopt
// could not take it over, or it was resumed already, and [ErrEnded]. A reservation whose description was
// overwritten has the key that Object returns, and can't be what it was: it should be discarded when
// nobody writes to it any more.
func (r *Request) Resume(id uint32) (*Reservation, error) {
	if err := r.lockOpen(); err != nil {
		return nil, err
	}
	s := r.s
	defer s.mu.Unlock()
	o := s.durability.resumable[id]
	if o == nil {
		return nil, fmt.Errorf("%w: no reservation of id %d was adopted", ErrStale, id)
	}
	if err := s.seg.Hold(); err != nil {
		return nil, err
	}
	delete(s.durability.resumable, id)
	r.pending++
	from := o.chunk.address + shmring.HeaderSize
	end := o.chunk.address + uint64(o.chunk.size)
	return &Reservation{r: r, o: o, key: o.Key(), payload: s.seg.Ring()[from:end:end], front: int(o.chunk.descriptionOffset)}, nil
}
