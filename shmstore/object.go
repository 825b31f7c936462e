package shmstore

import (
	"iter"
	"unique"

	"github.com/ringcache/ringcache/internal/evict"
	"github.com/ringcache/ringcache/internal/payload"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmring"
)

// Object is one payload, with what a [Store] keeps of it. What a caller can ask an Object for
// never changes once it was put.
type Object struct {
	// Record is for the [PayloadOwner]: the struct in which it embeds the Object by value,
	// so that there is one record for each object. NewObject sets it, and nothing else.
	Record any

	// A store may have a million of them, so no byte is here twice or for nothing.
	// See docs/decisions.md, "An object is small on the heap, and its key is taken apart".
	key   key
	more  *more   // nil if there is neither a tenant nor a note, nor can it have parents
	cost  float64 // of making it again, in nanoseconds, as it was claimed; 0 is unknown
	chunk chunk

	// Only space changes these, and class and noParent.
	cached        evict.Entry // live while it has its key
	search        uint64      // see search
	placeInStore  int32       // among the idle objects, if it is one
	placeOfTenant int32       // among those of its tenant

	// Only lifetime and its requests change these, and state, pinned and quarantined.
	leases int32 // of requests that have not ended
	sent   int32 // of them, of requests that were committed

	// Only durability changes these.
	word  uint64 // the use word in the sidecar, unwritten if it is not known
	entry int32  // in the sidecar's table, -1 if none

	takes uint32 // bytes that the chunk takes, see extent

	state       objectState
	class       class
	pinned      bool
	quarantined bool
	noParent    bool // it would descend from itself
	busy        bool // it is counted in links.among.busy
	plain       bool // the payload has no PayloadOwner
	fullSum     bool // chunk.sum covers all of the payload
}

// chunk is where an object is, and what the table of the sidecar has of it.
type chunk struct {
	address           uint64
	id                uint32
	size              uint32 // with the header
	descriptionOffset uint32 // of what the store writes beside the payload
	descriptionLength uint32
	sum               uint32
	lead              uint32 // bytes of the segment that are in front of the payload, without address
}

// setRecord sets what record returns.
func (o *Object) setRecord(r sidecar.Record) {
	o.chunk = chunk{
		address: r.Address, id: r.ID, size: uint32(r.Size), sum: r.Sum,
		descriptionOffset: uint32(r.DescriptionOffset), descriptionLength: uint32(r.DescriptionLength),
	}
	o.fullSum = r.Full
}

// record returns the entry of the object in the sidecar's table.
func (o *Object) record() sidecar.Record {
	c := &o.chunk
	return sidecar.Record{
		Address: c.address, ID: c.id, Size: int(c.size), Sum: c.sum, Full: o.fullSum,
		DescriptionOffset: int(c.descriptionOffset), DescriptionLength: int(c.descriptionLength),
	}
}

// extent returns the bytes that the chunk takes.
func (o *Object) extent() int64 { return int64(o.takes) }

// length returns the bytes of the payload.
func (o *Object) length() uint64 {
	if o.plain {
		return uint64(o.chunk.descriptionOffset) - (payload.Lead - shmring.HeaderSize)
	}
	return uint64(o.chunk.size) - shmring.HeaderSize
}

// offset returns where the payload begins in the segment.
func (o *Object) offset() uint64 { return o.chunk.address + uint64(o.chunk.lead) }

// more is what most objects don't have.
type more struct {
	tenant unique.Handle[string] // of many objects; the zero value is nobody
	note   []byte
	links  *links // nil in a store whose objects have no parents
}

// describeMore sets the tenant and the note. Of a family's object it makes the links, too.
func (o *Object) describeMore(tenant string, note []byte, family bool) {
	switch {
	case family:
		both := new(struct {
			more
			own links
		})
		o.more, both.links = &both.more, &both.own
	case tenant != "" || len(note) > 0:
		o.more = new(more)
	default:
		return
	}
	o.more.note = note
	if tenant != "" {
		o.more.tenant = unique.Make(tenant)
	}
}

// links returns the place of the object in its family, nil if it can have none.
func (o *Object) links() *links {
	if o.more == nil {
		return nil
	}
	return o.more.links
}

// setDescription takes over what stands of the object beside its payload.
func (o *Object) setDescription(d payload.Description, family bool) {
	o.cost, o.key = d.Cost, newKey(d.Key)
	o.describeMore(d.Tenant, d.Note, family)
}

// tenant returns PutOptions.Tenant.
func (o *Object) tenant() string {
	if o.more == nil || o.more.tenant == (unique.Handle[string]{}) {
		return ""
	}
	return o.more.tenant.Value()
}

type objectState uint8

const (
	reserved  objectState = iota // being written; see lifetime for who moves an object from one to the other
	committed                    // has its key
	retired                      // committed, but its key means another object now, or none
	discarded                    // free as soon as the memory allows
)

// Key returns the key under which the object was put. It makes the string anew if the key has a zero byte.
func (o *Object) Key() string { return o.key.text() }

// Note returns PutOptions.Note of whoever put the object. It must not be written to.
func (o *Object) Note() []byte {
	if o.more == nil {
		return nil
	}
	return o.more.note
}

// Handle returns where the payload is.
func (o *Object) Handle() Handle {
	return Handle{Offset: o.offset(), Length: o.length(), ID: o.chunk.id}
}

// Handle is where a payload is. Another process that has attached the segment
// finds it there, see [Reader.Get].
type Handle struct {
	Offset uint64 // of the payload's first byte in the segment
	Length uint64 // of the payload in bytes
	ID     uint32 // in the chunk's header, as long as the payload is there
}

// PayloadOwner is whoever put the payloads of a store, and counts who reads them.
// The store asks it when a payload's readers are done. Without one, nobody counts
// reads.
//
// Every method is called under the store's lock, and must not call the Store. A
// method may look at the object's chunk, whose payload is the whole of it then: a fault
// there is an error of the store's method.
type PayloadOwner interface {
	// NewObject returns a new object, with its Record.
	NewObject() *Object
	// Commit is called before a payload becomes visible.
	Commit(*Object)
	// Usable reports whether the object can be given to one more request. One that can
	// not loses its key, so that a new object is put in its place.
	Usable(*Object) bool
	// Use gives the object n times to a request that was not sent. It returns how many
	// uses it has counted for that; an error changes nothing.
	Use(o *Object, n int) (uses int64, err error)
	// Sent is called when a request is committed that has so many uses.
	Sent(o *Object, uses int64)
	// TakeBack undoes what Use counted, for a request that was never sent.
	TakeBack(o *Object, n int, uses int64)
	// Unread reports whether a reader of an aborted request may still need the object.
	// late reports that a long time has passed, so that only a reader who can be inside
	// at this moment counts.
	Unread(o *Object, late bool) bool
	// Idle is called when no request needs the object: what was not read will not be.
	Idle(*Object)
	// Word returns what the sidecar keeps of the uses; Restore takes it back, when a
	// segment is adopted. inUse reports that a request of the last writer may need the
	// object.
	Word(*Object) uint32
	Restore(o *Object, word uint32, inUse bool)
	// Reset is called when so many new processes read from now on, in the place of
	// those that did. The uses of requests that were not sent stay. It guards itself
	// against faults, one object after the other.
	Reset(readers int, objects iter.Seq[*Object])
	// Check returns what is wrong with the record of an object.
	Check(*Object) error
}

// uncounted is the PayloadOwner of payloads whose reads nobody counts. Who reads them
// in place without a slot is known from requests alone.
type uncounted struct{}

func (uncounted) NewObject() *Object               { return new(Object) }
func (uncounted) Commit(*Object)                   {}
func (uncounted) Usable(*Object) bool              { return true }
func (uncounted) Use(*Object, int) (int64, error)  { return 0, nil }
func (uncounted) Sent(*Object, int64)              {}
func (uncounted) TakeBack(*Object, int, int64)     {}
func (uncounted) Unread(_ *Object, late bool) bool { return !late }
func (uncounted) Idle(*Object)                     {}
func (uncounted) Word(*Object) uint32              { return 0 }
func (uncounted) Restore(*Object, uint32, bool)    {}
func (uncounted) Reset(int, iter.Seq[*Object])     {}
func (uncounted) Check(*Object) error              { return nil }

// locate finds the payload in the chunk of an object. The payload that an owner lays out is the
// whole chunk behind the header.
func (o *Object) locate(dataOffset int, plain bool) {
	lead := shmring.HeaderSize
	if plain {
		lead = payload.Lead
	}
	o.chunk.lead, o.plain = uint32(dataOffset+lead), plain
}
