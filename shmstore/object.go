package shmstore

import (
	"container/list"
	"iter"
	"time"

	"github.com/ringcache/ringcache/internal/evict"
)

// Object is one payload, with what a [Store] keeps of it. The owner of the payloads
// embeds it by value in a struct of its own, see [Record], so that there is one
// record for each object.
//
// What a caller can ask an Object for never changes once it was put.
type Object struct {
	record  Record
	key     string
	address uint64 // of the chunk, in the bytes that the pool allocates
	id      uint32
	size    int // of the chunk, with its header
	state   objectState
	tenant  string
	cost    float64 // of making it again, in nanoseconds
	note    []byte

	leases int // of requests that have not ended
	sent   int // of them, of requests that were committed
	pinned bool

	class       class
	extent      int64         // bytes that the chunk takes
	places      [idleSets]int // in the sets of idle objects
	search      uint64        // see search
	quarantined *list.Element
	fence       uint64       // the one that ends the quarantine
	until       time.Time    // or then, if nobody is inside
	cached      *evict.Entry // nil but while it has its key

	entry                                int // in the sidecar, -1 if none
	descriptionOffset, descriptionLength int // of what the store writes beside the payload
	sum                                  uint32
	fullSum                              bool
}

type objectState uint8

const (
	reserved  objectState = iota // being written
	committed                    // has its key
	retired                      // committed, but its key means another object now, or none
	discarded                    // free as soon as the memory allows
)

// Record is a struct that embeds an [Object] by value: the owner's record of an
// object.
type Record interface{ object() *Object }

func (o *Object) object() *Object { return o }

// Record returns the owner's record that embeds the object.
func (o *Object) Record() Record { return o.record }

// Key returns the key under which the object was put.
func (o *Object) Key() string { return o.key }

// Note returns PutOptions.Note of whoever put the object. It must not be written to.
func (o *Object) Note() []byte { return o.note }

// Address returns the offset of the chunk's header behind Options.DataOffset.
func (o *Object) Address() uint64 { return o.address }

// ID returns the monotonic id in the chunk's header.
func (o *Object) ID() uint32 { return o.id }

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
// method may look at the object's bytes ([Store.Chunk]): a fault there is an error of
// the store's method.
type PayloadOwner interface {
	// NewRecord returns the record of a new object.
	NewRecord() Record
	// Commit is called before a payload becomes visible.
	Commit(Record)
	// Usable reports whether the object can be given to one more request. One that can
	// not loses its key, so that a new object is put in its place.
	Usable(Record) bool
	// Use gives the object n times to a request that was not sent. It returns how many
	// uses it has counted for that; an error changes nothing.
	Use(r Record, n int) (uses int64, err error)
	// Sent is called when a request is committed that has so many uses.
	Sent(r Record, uses int64)
	// TakeBack undoes what Use counted, for a request that was never sent.
	TakeBack(r Record, n int, uses int64)
	// Done reports whether every use was read, so that an aborted request needs the
	// object no longer.
	Done(Record) bool
	// Quiet reports whether nobody can be inside, so that a long time is enough to end
	// a quarantine.
	Quiet(Record) bool
	// Idle is called when no request needs the object: what was not read will not be.
	Idle(Record)
	// Word returns what the sidecar keeps of the uses; Restore takes it back, when a
	// segment is adopted. inUse reports that a request of the last writer may need the
	// object.
	Word(Record) uint32
	Restore(r Record, word uint32, inUse bool)
	// Reset is called when so many new processes read from now on, in the place of
	// those that did. The uses of requests that were not sent stay. It guards itself
	// against faults, one object after the other.
	Reset(readers int, objects iter.Seq[Record])
	// Check returns what is wrong with a record.
	Check(Record) error
}

// uncounted is the PayloadOwner of payloads whose reads nobody counts. Who reads them
// in place without a slot is known from requests alone.
type uncounted struct{}

func (uncounted) NewRecord() Record              { return new(Object) }
func (uncounted) Commit(Record)                  {}
func (uncounted) Usable(Record) bool             { return true }
func (uncounted) Use(Record, int) (int64, error) { return 0, nil }
func (uncounted) Sent(Record, int64)             {}
func (uncounted) TakeBack(Record, int, int64)    {}
func (uncounted) Done(Record) bool               { return false }
func (uncounted) Quiet(Record) bool              { return true }
func (uncounted) Idle(Record)                    {}
func (uncounted) Word(Record) uint32             { return 0 }
func (uncounted) Restore(Record, uint32, bool)   {}
func (uncounted) Reset(int, iter.Seq[Record])    {}
func (uncounted) Check(Record) error             { return nil }

// newObject returns an object without an entry in the sidecar.
func (s *Store) newObject() *Object {
	r := s.owner.NewRecord()
	o := r.object()
	o.record, o.entry = r, -1
	return o
}

// visible yields the objects that were committed.
func (s *Store) visible() iter.Seq[*Object] {
	return func(yield func(*Object) bool) {
		for _, o := range s.objects {
			if o.state != reserved && o.state != discarded && !yield(o) {
				return
			}
		}
	}
}

// records yields the owner's records of objects.
func records(objects iter.Seq[*Object]) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		for o := range objects {
			if !yield(o.record) {
				return
			}
		}
	}
}
