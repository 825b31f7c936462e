package shmstore

import (
	"fmt"
	"math"
	"time"

	"github.com/ringcache/ringcache/internal/payload"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
)

// Options say what store to make.
type Options struct {
	// Name of the segment. Create makes one up if it is empty.
	Name string
	// Segment, if not nil, is used instead of the segment of a name: the caller created or
	// adopted it, or made it over private memory. The store closes it, and does not remove
	// it.
	Segment *segment.Segment
	// Size is the bytes for payloads, with 64 bytes and a description of each.
	Size int
	// DataOffset is bytes of the segment in front, which are the owner's.
	DataOffset int
	// Align is the alignment of payloads in the segment: a power of two from 64 to
	// 4096; 0 is 64. Each takes a multiple of so many bytes.
	Align int
	// MaxObjectSize is the most bytes of one payload; 0 is Size.
	MaxObjectSize int
	// MaxObjects is the most objects at a time: the sidecar has 64 bytes for each. 0
	// is one for every 8 KiB of Size, within 1024 and 2^20. An object counts once more for each KiB of its key,
	// tenant and note, which are on the heap.
	MaxObjects int
	// ReaderSlots is the most readers of this library that look at payloads in place,
	// 2 KiB each in the sidecar. 0 is 64.
	ReaderSlots int
	// Format names what the payloads are, in at most 18 bytes. Adopt refuses a segment
	// of another format.
	Format string
	// Accept, if not nil, decides for Adopt instead: it gets the segment's format, and
	// returns what is wrong with it.
	Accept func(format string) error
	// Owner is a label: segment.Sweep removes only segments of the label that it is given.
	Owner string
	// Payloads returns who counts the reads of the payloads of a store, which is about
	// to be used. nil: nobody counts them.
	Payloads func(*Store) PayloadOwner
	// NoHandles says that nobody finds payloads by a handle from before, but by asking the store, so that an
	// id that stands somewhere in free room leads nobody there. Adopt then does not write to all free room
	// after a kill, which would take seconds for each 4 GiB, unless a record of the sidecar is damaged.
	NoHandles bool
	// Readers is the number of processes that read every payload, for a PayloadOwner.
	Readers int
	// FirstID is the id of the first object. Create in a Segment that was in use wants one
	// that no handle still has.
	FirstID uint32
	// Parent, if not nil, returns the key of an object's parent, "" if it has none, from what was put:
	// always the same. A parent is not evicted while a child of it is there, or is being stored; a
	// child may come without its parent. It is called under the store's lock: it must be quick and must not call the
	// Store, and Adopt calls it with notes that passed a checksum.
	// See docs/decisions.md, "The store of bytes knows parents, by a function of what was put".
	Parent func(key string, note []byte) string
	// FullSums makes the sidecar's checksums cover every byte of a payload, so that
	// Adopt finds any change that something else made to it. Without, they cover
	// payloads up to 4 KiB, and samples of larger ones: a full sum takes longer than
	// writing the payload.
	FullSums bool
	// QuarantineTTL ends the quarantine of an aborted request for which no fence
	// passes, if nobody can be inside (PayloadOwner.Unread). 0 is ten minutes; less is
	// never.
	//
	// Without a PayloadOwner nobody counts reads, and the time alone ends it for readers
	// without a slot. Whoever has such readers sets it below 0, and passes fences.
	QuarantineTTL time.Duration
	// Reserved are reservations of the dead writer, as Reservation.Chunk returned them, that Adopt takes over:
	// nobody gets their room. Each must be resumed, with Request.Resume, before the store is used otherwise.
	Reserved []ReservedChunk
	// Quotas bound the bytes of each tenant (PutOptions.Tenant); Quota those of a
	// tenant that is not in it. 0 is no bound.
	Quotas map[string]int64
	Quota  int64
	// Watch, if not nil, is called for every key that comes and goes. It is called
	// under the store's lock: it must be quick and must not call the Store.
	Watch func(Change)
	// Dir is the directory of shared memory, /dev/shm if empty.
	Dir string
}

// defaultQuarantineTTL is far longer than any reader takes for anything.
const defaultQuarantineTTL = 10 * time.Minute

// Change reports that the object under a key is there now, or no longer.
type Change struct {
	Key     string
	ID      uint32
	Present bool
}

// validate returns what is wrong with the options.
func (o Options) validate() error {
	switch {
	case !payload.ValidAlign(o.align()):
		return fmt.Errorf("%w: Align %d, want a power of two from %d to %d", errInvalid, o.Align, payload.MinAlign, payload.MaxAlign)
	case o.Size <= shmring.HeaderSize || o.Size > math.MaxInt-payload.MaxAlign-max(o.DataOffset, 0):
		return fmt.Errorf("%w: Size is %d, want the bytes of the store: at least %d, and more than the largest payload takes", errInvalid, o.Size, shmring.HeaderSize+1)
	case o.DataOffset < 0:
		return fmt.Errorf("%w: DataOffset %d is negative", errInvalid, o.DataOffset)
	case o.MaxObjectSize < 0 || o.MaxObjectSize > o.Size:
		return fmt.Errorf("%w: MaxObjectSize %d, want at most Size, %d", errInvalid, o.MaxObjectSize, o.Size)
	case o.MaxObjects < 0 || o.ReaderSlots < 0 || o.Readers < 0:
		return fmt.Errorf("%w: MaxObjects %d, ReaderSlots %d, Readers %d", errInvalid, o.MaxObjects, o.ReaderSlots, o.Readers)
	case o.FirstID >= shmring.IDLimit:
		return fmt.Errorf("%w: FirstID %d is not below 2^31", errInvalid, o.FirstID)
	}
	return nil
}

func (o Options) align() int {
	if o.Align == 0 {
		return payload.MinAlign
	}
	return o.Align
}

func (o Options) maxObjectSize() int {
	if o.MaxObjectSize == 0 {
		return o.Size
	}
	return o.MaxObjectSize
}

// format is what the sidecar contains as the format of the payloads.
func (o Options) format() string { return payload.Format(o.Format, o.align()) }

// accept returns what is wrong with the format of a segment that is adopted.
func (o Options) accept(format string) error {
	if o.Accept != nil {
		return o.Accept(format)
	}
	if format != o.format() {
		return fmt.Errorf("%w: its format is %q, not %q; adopt it as that, or remove it (ringcache sweep NAME --any-owner --remove) and create it anew", errInvalid, format, o.format())
	}
	return nil
}

// segment returns the options of the segment and its sidecar.
func (o Options) segment() segment.Options {
	c := &segment.SidecarOptions{
		Pool: true, Format: o.format(), Owner: o.Owner, Readers: o.Readers, Slots: o.ReaderSlots, Objects: o.MaxObjects,
	}
	if c.Objects == 0 {
		c.Objects = min(max(o.Size/(8<<10), 1<<10), 1<<20)
	}
	return segment.Options{Name: o.Name, RingSize: o.Size, DataOffset: o.DataOffset, Dir: o.Dir, Sidecar: c}
}

// pool returns the options of the allocator.
func (o Options) pool() shmring.PoolOptions {
	p := payload.PoolOptions(o.DataOffset, o.align(), o.Payloads == nil)
	p.FirstID = o.FirstID
	return p
}
