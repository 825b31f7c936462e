package check

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ringcache/ringcache/internal/payload"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmring"
)

// entryTries bounds how often an entry is looked at that changes meanwhile.
const entryTries = 20

// checkTable checks the objects of a pool.
func (c *checker) checkTable() error {
	var good []sidecar.Entry
	for i := range c.control.Options().Objects {
		if e, ok := c.checkObject(i); ok {
			good = append(good, e)
		}
		if c.opt.Progress != nil {
			c.opt.Progress(i+1, c.control.Options().Objects)
		}
	}
	c.checkIDs(good)
	c.checkPlaces(good)
	return nil
}

// checkObject checks entry i and its object. ok is false if the entry is free, or its words are
// not to be believed.
func (c *checker) checkObject(i int) (e sidecar.Entry, ok bool) {
	for range entryTries {
		if e = c.control.LookAtEntry(i); e.Free {
			return e, false
		}
		found := c.inSidecar(c.control.CheckEntry(e)...)
		ok = !e.Damaged && e.ID < shmring.IDLimit
		if ok {
			found = append(found, c.checkChunk(e)...)
		}
		if !c.control.Has(e) {
			continue // it went meanwhile: what was found is of another object
		}
		if ok {
			c.report.Chunks++
			c.report.Bytes += int64(e.Size)
		}
		c.add(found...)
		return e, ok
	}
	c.report.Busy++
	return e, false
}

// checkChunk returns what is wrong with the chunk of an entry.
func (c *checker) checkChunk(e sidecar.Entry) (found []Finding) {
	ring, offset := c.seg.Ring(), int64(len(c.seg.Secret()))
	if next, _, ok := c.control.LookAtState(); ok && !before(e.ID, next) {
		found = append(found, c.inSidecar(sidecar.Finding{
			Offset: c.control.EntryOffset(e.Index) + 16, What: fmt.Sprintf("id of entry %d", e.Index),
			Want: fmt.Sprintf("before the next id, %d", next), Got: fmt.Sprint(e.ID),
		})...)
	}
	if _, err := payload.Verify(ring, e.Record, c.wire == nil); err != nil {
		return append(found, c.wrong(fmt.Sprintf("entry %d, id %d", e.Index, e.ID), offset, err))
	}
	if c.wire == nil {
		return found
	}
	chunk, err := shmring.ReadChunk(ring, e.Address)
	if err == nil {
		return append(found, c.checkPayload(fmt.Sprintf("entry %d, id %d", e.Index, e.ID), chunk, &e.Record)...)
	}
	return append(found, c.wrong(fmt.Sprintf("entry %d, id %d", e.Index, e.ID), offset, err))
}

// before reports whether id was given out before next, modulo 2^31.
func before(id, next uint32) bool { return (next-id)%shmring.IDLimit-1 < shmring.IDLimit/2 }

// checkIDs compares the ids of objects with each other.
func (c *checker) checkIDs(entries []sidecar.Entry) {
	byID := make(map[uint32]int32, len(entries)) // the places of the entries
	for i, e := range entries {
		at, twice := byID[e.ID]
		byID[e.ID] = int32(i)
		if other := entries[at]; twice && c.both(e, other) {
			c.add(c.inSidecar(sidecar.Finding{
				Offset: c.control.EntryOffset(e.Index) + 16, What: fmt.Sprintf("id of entry %d", e.Index),
				Want: fmt.Sprintf("another than that of entry %d", other.Index), Got: fmt.Sprint(e.ID),
			})...)
		}
	}
}

// both reports whether two entries that were looked at are in the table now.
func (c *checker) both(a, b sidecar.Entry) bool {
	return c.control.Has(a) && c.control.Has(b)
}

// checkPlaces compares the places of objects with the rules of a pool, and with each other.
func (c *checker) checkPlaces(entries []sidecar.Entry) {
	ring, o := c.seg.Ring(), c.control.Options()
	placed := make([]shmring.Chunk, len(entries))
	for i, e := range entries {
		placed[i] = shmring.Chunk{Address: e.Address, ID: e.ID, Size: e.Size}
	}
	kept := make(map[uint32]bool, len(entries))
	for _, k := range payload.Pool(ring, o, c.wire == nil).Restore(placed, 0) {
		kept[k.ID] = true
	}
	slices.SortFunc(entries, func(a, b sidecar.Entry) int { return cmp.Compare(a.Address, b.Address) })
	room := payload.Pool(ring, o, c.wire == nil)
	extent := func(e sidecar.Entry) uint64 { return room.Extent(e.Size - shmring.HeaderSize) }
	reach := -1 // the entry that ends last, of those in front
	for i, e := range entries {
		alone := []shmring.Chunk{{Address: e.Address, ID: e.ID, Size: e.Size}}
		if !kept[e.ID] && len(payload.Pool(ring, o, c.wire == nil).Restore(alone, 0)) == 0 {
			if c.control.Has(e) {
				c.add(c.inSidecar(sidecar.Finding{
					Offset: c.control.EntryOffset(e.Index) + 8, What: fmt.Sprintf("place of entry %d", e.Index),
					Want: "one where a pool has chunks", Got: fmt.Sprintf("%d bytes at address %d", e.Size, e.Address),
				})...)
			}
			continue
		}
		if reach >= 0 && e.Address < entries[reach].Address+extent(entries[reach]) && c.both(e, entries[reach]) {
			c.add(Finding{
				c.name, int64(o.DataOffset) + int64(e.Address), fmt.Sprintf("begin of the chunk of entry %d", e.Index),
				fmt.Sprintf("behind that of entry %d, which ends at address %d", entries[reach].Index,
					entries[reach].Address+extent(entries[reach])), fmt.Sprint(e.Address),
			})
		}
		if reach < 0 || !c.control.Has(entries[reach]) ||
			e.Address+extent(e) > entries[reach].Address+extent(entries[reach]) {
			reach = i
		}
	}
}
