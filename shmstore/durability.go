package shmstore

import (
	"errors"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
)

// durability is the part of a [Store] that writes what other processes see: the headers of chunks, the
// table of objects in the sidecar, and the state of the writer. From these alone the next writer rebuilds
// the store, whenever this one is killed.
//
// A chunk in shared memory is in one of these states, by the id in its header and its entry in the table:
//
//   - unpublished: no entry, and an id that no reader looks for. The chunk is free, or is being written;
//   - published: an entry with the checksum of the payload, and the id. Readers find it;
//   - hidden: an entry, and no id. The writer is about to evict it, and looks whether a reader holds it;
//   - dropped: no entry, no id. The chunk is free.
//
// [durability.publish] moves a chunk from the first state to the second, [durability.hide] to the third,
// [durability.show] back, and [durability.remove] to the last. Each step is one aligned store, so a kill
// leaves the chunk in one of the states: what has an entry is adopted, and shown again if it was hidden.
// Everything else is free room.
//
// An entry has a use word beside it, of which lifetime decides the value: whether a request may need the
// object, whether its key means another object, and the count of its owner. The word is never less
// cautious than the truth: it is written before a handle is given out, and after a lease has ended.
//
// Ids are never given out twice, also not after a kill. So the state record has an id that was not given
// out yet, and is moved on in front of it, see markIDs.
//
// The adopter (durability_adopt.go) reads all of that and moves objects from the dead writer to this one;
// durability_resume.go does it for reservations, which have no entry.
//
// durability has no state of the store but what stands here. Every method touches shared memory first
// and changes Go state last: a fault leaves the Go state as it was. All methods are called with Store.mu
// held, but for guard, guardObject and checksum, which need no lock, and for the adopter, whose store
// nobody has yet.
type durability struct {
	// These never change, so they may be read without the lock.
	seg       *segment.Segment
	sidecar   *sidecar.File // nil if the segment has none
	pool      *shmring.Pool // the allocator of space, which knows where headers are
	plain     bool          // the payloads have no PayloadOwner
	fullSums  bool
	offset    int  // of the ring in the segment
	noHandles bool // Options.NoHandles

	markedIDs   uint32             // ids up to here are marked as given out
	deadReaders int                // readers whose slot was found without an owner
	resumable   map[uint32]*Object // reservations of the dead writer that nobody has resumed
}

// guard makes a fault in f a [CorruptError].
func (d *durability) guard(f func() error) error {
	err := fault.Guard(f)
	if errors.Is(err, fault.ErrFault) {
		return &CorruptError{Segment: d.seg.Name(), Err: d.seg.Explain(err)}
	}
	return err
}

// guardObject is guard for what is done to one object.
func (d *durability) guardObject(o *Object, f func() error) error {
	err := d.guard(f)
	if c, ok := err.(*CorruptError); ok {
		c.Address, c.ID = o.chunk.address, o.chunk.id
	}
	return err
}

// locate finds the payload in the chunk of an object of this store.
func (d *durability) locate(o *Object) { o.locate(d.offset, d.plain) }

// idBlock is how many ids are marked as given out at a time. Ids never repeat across crashes, and a crash skips
// up to so many.
const idBlock = 1 << 16

// markIDs makes sure that the next id is marked, so that whoever adopts the
// segment goes on behind it.
func (d *durability) markIDs() {
	if d.sidecar == nil {
		return
	}
	next, n := d.pool.NextID(), uint32(d.pool.Len()) // as many may be skipped
	if left := (d.markedIDs - next) % shmring.IDLimit; left <= n {
		state := d.sidecar.State()
		state.NextID = (next + idBlock + n) % shmring.IDLimit
		d.sidecar.SetState(state)
		d.markedIDs = state.NextID
	}
}

// setReaders records the number of processes that read from now on.
func (d *durability) setReaders(n int) error {
	if d.sidecar == nil {
		return nil
	}
	return d.guard(func() error {
		state := d.sidecar.State()
		state.Readers = n
		d.sidecar.SetState(state)
		return nil
	})
}

// checksum returns the checksum of a payload that nobody writes to any more. It needs no lock.
func (d *durability) checksum(o *Object, payload []byte) (sum uint32) {
	if d.sidecar != nil {
		_ = d.guard(func() error {
			front := int(o.chunk.descriptionOffset + o.chunk.descriptionLength)
			sum = sidecar.PayloadSum(payload, front, d.fullSums)
			return nil
		})
	}
	return sum
}

// publish makes a chunk that is filled readable and lasting. It is called in a guard, as are the
// methods below.
func (d *durability) publish(o *Object, use uint64) {
	if d.sidecar != nil {
		failpoint.Hit("pool.publish")
		o.entry = int32(d.sidecar.Put(o.record(), use))
		o.word = use
	}
	d.pool.Publish(o.chunk.id)
	failpoint.Hit("pool.published")
}

// setUse writes the use word of an object that has an entry.
func (d *durability) setUse(o *Object, use uint64) {
	if o.entry >= 0 && o.word != use {
		d.sidecar.SetUse(int(o.entry), use)
		o.word = use
	}
}

// hide takes away the ids of chunks, so that no reader comes to them any more, and returns those that a
// reader held before.
func (d *durability) hide(ids []uint32) (held map[uint32]struct{}) {
	for _, id := range ids {
		d.pool.Kill(id)
		failpoint.Hit("pool.evict.killed")
	}
	if d.sidecar != nil {
		var dead int
		held, dead = d.sidecar.HeldOf(ids)
		d.deadReaders += dead
	}
	return held
}

// show ends hide for a chunk that stays. Whoever saw it without its id was late anyway.
func (d *durability) show(id uint32) { d.pool.Publish(id) }

// remove makes a chunk one that nobody finds, in this process or the next. The id of an object that was
// never published is dead.
func (d *durability) remove(o *Object) {
	if o.entry >= 0 {
		d.pool.Kill(o.chunk.id)
		d.sidecar.Drop(int(o.entry))
		o.entry = -1
	} else if d.sidecar == nil && o.state != discarded {
		d.pool.Kill(o.chunk.id)
	}
	failpoint.Hit("pool.drop")
}

// held returns the ids of all chunks that readers hold.
func (d *durability) held() map[uint32]struct{} {
	held, dead := d.sidecar.Held()
	d.deadReaders += dead
	return held
}

// reap counts the readers that died since the last time, and clears their slots.
func (d *durability) reap() {
	if d.sidecar != nil {
		_ = d.guard(func() error { d.deadReaders += d.sidecar.Reap(); return nil })
	}
}

// check verifies that the table is what objects believe it to be.
func (d *durability) check(s *space, bad report) {
	if d.sidecar == nil {
		return
	}
	entries := 0
	for o := range s.all() {
		if o.entry >= 0 {
			entries++
		}
		switch live := o.state == committed || o.state == retired; {
		case !live:
		case o.entry < 0:
			bad("key %q has no entry in the sidecar", o.Key())
		default:
			err := d.guard(func() error {
				if u, ok := d.sidecar.Use(int(o.entry)); !ok || u != o.word {
					bad("key %q: the sidecar's use is %#x (its check is right: %v), want %#x", o.Key(), u, ok, o.word)
				}
				return nil
			})
			if err != nil {
				bad("key %q: %w", o.Key(), err)
			}
		}
	}
	if d.sidecar.Free()+entries != d.sidecar.Options().Objects {
		bad("%d entries used and %d free of %d", entries, d.sidecar.Free(), d.sidecar.Options().Objects)
	}
}
