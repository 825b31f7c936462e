package inspect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/payload"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/tier/memory"
)

const (
	// maxDescription bounds what is read of one object. Keys, tenants and notes of this library are shorter.
	maxDescription = 1 << 20
	// front is how much of a chunk is read at once: most have their description within it.
	front = 4 << 10
	// entryTries bounds how often an entry is looked at that changes meanwhile.
	entryTries = 20
)

// Objects lists the objects of a pool, in the order of its table, and then those that are being written under
// leases; or the chunks of a ring, in the order of their addresses. It reads on while the caller takes them,
// and keeps none.
func (x *Segment) Objects() iter.Seq[Object] {
	return func(yield func(Object) bool) {
		if x.file == nil {
			return
		}
		if x.pool == nil {
			x.yieldChunks(yield)
			return
		}
		heldBy := map[uint32][]string{}
		for _, h := range x.holders() {
			for _, id := range h.ids {
				heldBy[id] = append(heldBy[id], h.String())
			}
		}
		var buf []byte
		for i := range x.control.Options().Objects {
			var o Object
			var there bool
			err := fault.Guard(func() error {
				o, there = x.object(i, &buf)
				return nil
			})
			if err != nil {
				yield(Object{
					State: Damaged, Address: -1, Size: -1, Chunk: -1, Reads: -1, Issued: -1,
					Problem: "the sidecar was cut short: " + err.Error(),
				})
				return
			}
			if !there {
				continue
			}
			if o.HeldBy = heldBy[o.ID]; len(o.HeldBy) > 0 && o.State == Evictable {
				o.State = InUse
			}
			if !yield(o) {
				return
			}
		}
		x.yieldReserved(&buf, yield)
	}
}

// yieldReserved yields what is being written under leases.
func (x *Segment) yieldReserved(buf *[]byte, yield func(Object) bool) {
	leases, _ := x.leases()
	for _, l := range leases {
		for _, r := range l.Reserved {
			o := Object{
				State: Reserved, Address: int64(min(r.Address, math.MaxInt64)), ID: r.ID,
				Size: int64(r.Size), Chunk: int64(r.Size),
				Reads: -1, Issued: -1, HeldBy: []string{Holder{Kind: "lease", Name: l.ID}.String()},
			}
			if !x.fits(r) {
				o.State = Damaged
				o.Problem = fmt.Sprintf("a reservation of %d bytes at address %d is not in a ring of %d",
					r.Size, r.Address, x.size)
			} else {
				o.Chunk = x.extent(r)
				if !x.brief {
					if _, d, err := x.readDescription(sidecar.Entry{Record: r}, buf); err == nil {
						x.setKey(&o, d)
					}
				}
			}
			if !yield(o) {
				return
			}
		}
	}
}

func (x *Segment) yieldChunks(yield func(Object) bool) {
	for _, c := range x.follow().chunks {
		o := Object{
			State: Unknown, Address: c.address, ID: c.id, Size: c.size - shmring.HeaderSize, Chunk: c.size,
			Reads: int64(c.reads), Issued: -1,
		}
		if !yield(o) {
			return
		}
	}
}

// object describes the object of an entry. there is false if the entry is free, or its object went.
func (x *Segment) object(i int, buf *[]byte) (o Object, there bool) {
	for range entryTries {
		e := x.control.LookAtEntry(i)
		if e.Free {
			return o, false
		}
		o = x.describeEntry(e, buf)
		if x.control.Has(e) { // else what was read may be of another object
			return o, true
		}
	}
	return o, false // it comes and goes faster than it can be read
}

func (x *Segment) describeEntry(e sidecar.Entry, buf *[]byte) (o Object) {
	o = Object{
		State: Evictable, Address: int64(min(e.Address, math.MaxInt64)), ID: e.ID, Reads: -1, Issued: -1,
		Size: int64(e.Size), Chunk: int64(e.Size),
	}
	bad := func(format string, args ...any) Object {
		o.State, o.Problem = Damaged, fmt.Sprintf(format, args...)
		return o
	}
	switch {
	case e.Damaged:
		return bad("entry %d: its checksum is wrong", e.Index)
	case !x.fits(e.Record):
		return bad("entry %d: %d bytes at address %d are not in a ring of %d", e.Index, e.Size, e.Address, x.size)
	}
	if at := x.control.PutTime(e.Index); at.UnixNano() > 0 {
		o.Stored = at
	}
	o.Chunk = x.extent(e.Record)
	o.Size = int64(e.Size) - shmring.HeaderSize
	use, ok := x.control.Use(e.Index)
	switch {
	case !ok:
		return bad("entry %d: the check of its use word is wrong", e.Index)
	case use&payload.UseRetired != 0:
		o.State = Retired
	case use&payload.UseBusy != 0:
		o.State = InUse
	}
	if x.brief {
		return o
	}
	head, d, err := x.readDescription(e, buf)
	if err != nil {
		return bad("entry %d: %v", e.Index, err)
	}
	if id := binary.LittleEndian.Uint32(head); id != e.ID && id != shmring.DeadID && id != shmring.GoneID {
		return bad("entry %d: its chunk has the id %d", e.Index, id)
	}
	if x.wire != nil {
		o.Issued = int64(uint32(use))
		o.Reads = int64(int32(binary.LittleEndian.Uint32(head[shmring.HeaderSize:])))
	}
	x.setKey(&o, d)
	return o
}

// setKey fills in what a description has.
func (x *Segment) setKey(o *Object, d payload.Description) {
	o.Key, o.Tenant, o.Cost = d.Key, d.Tenant, duration(d.Cost)
	if t, ok := memory.Describe(x.control.Options().Generation, d.Key, d.Note); ok {
		o.Key, o.Space, o.Name, o.Parent, o.Size = t.Space+"/"+t.Name, t.Space, t.Name, t.Parent, t.Size
	}
}

// duration of a float of nanoseconds, which a description has.
func duration(ns float64) time.Duration {
	if ns >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(ns)
}

// readDescription reads the header of a chunk with the count behind it, and its description.
func (x *Segment) readDescription(e sidecar.Entry, buf *[]byte) (head []byte, d payload.Description, err error) {
	at := x.base + int64(e.Address)
	from, n := int64(e.DescriptionOffset)+shmring.HeaderSize, int64(e.DescriptionLength)
	switch {
	case from < shmring.HeaderSize+4 || n < payload.MinSize || from+n > int64(e.Size):
		return nil, d, errors.New("its description is not within the chunk")
	case n > maxDescription:
		return nil, d, fmt.Errorf("its description has %d bytes, at most %d are read", n, maxDescription)
	}
	whole := from+n <= front
	need := shmring.HeaderSize + 4 + n
	if whole {
		need = from + n
	}
	if int64(cap(*buf)) < need {
		*buf = make([]byte, max(need, front))
	}
	b := (*buf)[:need]
	head, text := b[:shmring.HeaderSize+4], b[need-n:]
	if whole {
		_, err = x.file.ReadAt(b, at)
	} else if _, err = x.file.ReadAt(head, at); err == nil {
		_, err = x.file.ReadAt(text, at+from)
	}
	if err != nil {
		return nil, d, fmt.Errorf("its chunk can't be read: %w", err)
	}
	d, err = payload.Parse(text)
	return head, d, err
}
