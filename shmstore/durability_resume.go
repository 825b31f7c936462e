package shmstore

import (
	"cmp"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmring"
)

// A reservation has no entry in the table of the sidecar, so one who wants it to outlive the
// process remembers its [sidecar.Record] elsewhere, and gives that to Adopt. The description beside the payload was written
// when the room was reserved.

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Record returns where the reservation is, for Options.Reserved; its sum is that of the description. It is for
// the packages of this module.
func (r *Reservation) Record() (rec sidecar.Record) {
	rec = r.o.chunk
	_ = r.r.s.durability.guard(func() error {
		rec.Sum = crc32.Checksum(r.payload[r.front:r.front+rec.DescriptionLength], castagnoli)
		return nil
	})
	return rec
}

// placeChunks has the allocator take over the chunks of objects, and of those reservations that lie beside
// them. It returns what it took.
func (a *adopter) placeChunks(placed []shmring.Chunk, reservations []sidecar.Record) (kept []shmring.Chunk, reserved []sidecar.Record) {
	s := a.space
	end := func(c shmring.Chunk) uint64 { return c.Address + uint64(s.extent(c.Size-shmring.HeaderSize)) }
	taken := slices.Clone(placed)
	slices.SortFunc(taken, func(a, b shmring.Chunk) int { return cmp.Compare(a.Address, b.Address) })
	ids := map[uint32]bool{}
	for _, c := range placed {
		ids[c.ID] = true
	}
	least := minDescriptionOffset
	if a.durability.plain {
		least = plainLead - shmring.HeaderSize
	}
	for _, r := range reservations {
		payload := r.Size - shmring.HeaderSize
		if payload < least || r.Size > shmring.MaxChunk || r.Address > uint64(s.size) || ids[r.ID] || r.DescriptionOffset < least ||
			r.DescriptionOffset > payload || r.DescriptionLength < descriptionFixed || r.DescriptionLength > payload-r.DescriptionOffset {
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
	reserved = slices.DeleteFunc(reserved, func(r sidecar.Record) bool { return !there[r.ID] })
	apart := map[uint32]bool{}
	for _, r := range reserved {
		apart[r.ID] = true
	}
	return slices.DeleteFunc(all, func(c shmring.Chunk) bool { return apart[c.ID] }), reserved
}

// restoreReserved makes the objects of reservations. Where the description is not what it was, somebody wrote
// behind his payload: his reservation stays, under a key that nobody has.
func (a *adopter) restoreReserved(records []sidecar.Record) {
	d, l := a.durability, a.lifetime
	d.resumable = map[uint32]*Object{}
	ring := d.seg.Ring()
	for _, r := range records {
		o := l.newObject()
		o.state, o.chunk = reserved, r
		// The header, which somebody may have written over: nobody finds the chunk by it.
		mem.Store32(ring[r.Address:], shmring.GoneID)
		mem.Store32(ring[r.Address+4:], uint32(r.Size))
		at := r.Address + shmring.HeaderSize + uint64(r.DescriptionOffset)
		b := ring[at : at+uint64(r.DescriptionLength)]
		if crc32.Checksum(b, castagnoli) != r.Sum || o.parseDescription(b) != nil || l.index[o.key] != nil || l.pending[o.key] != nil {
			o.key, o.more, o.cost = fmt.Sprintf("\x00lost\x00%d", r.ID), nil, 0
		}
		o.chunk.Sum = 0
		l.pending[o.key] = o
		a.space.own(o)
		d.resumable[r.ID] = o
	}
}

// Resume makes a reservation of Options.Reserved one of the request. The error is [ErrStale] if Adopt could not
// take it over, or it was resumed already, and [ErrEnded]. A reservation whose description was overwritten has the key
// that Object returns, and can't be what it was: it should be discarded when nobody writes to it any more.
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
	from := o.chunk.Address + shmring.HeaderSize
	end := o.chunk.Address + uint64(o.chunk.Size)
	return &Reservation{r: r, o: o, payload: s.seg.Ring()[from:end:end], front: o.chunk.DescriptionOffset}, nil
}
