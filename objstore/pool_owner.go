package objstore

import (
	"iter"
	"math"

	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmstore"
)

// poolOwner answers the store of a pool when the readers of an object are done. Its
// methods are called under the store's lock and in its guard.
type poolOwner struct{ p *Pool }

// poolObject is the record of an object in a pool.
type poolObject struct {
	shmstore.Object
	counts
	writtenOff int64 // reads that are missing and not needed any more; negative if too many were counted
	idleReads  int64 // reads when it was last idle, -1 if that is not known
	signature  serde.Signature
}

// reads returns the read count of an object as it is in the segment now.
func (p *Pool) reads(o *poolObject) int64 { return readCount(p.payload(&o.Object)) }

// payload returns the memory from the payload of an object on.
func (p *Pool) payload(o *shmstore.Object) []byte {
	return p.Segment().Bytes()[o.Handle().Offset:]
}

// bytesHandle returns the handle of the store of bytes for a handle of the pool.
func (p *Pool) bytesHandle(h serde.Address) shmstore.Handle {
	return shmstore.Handle{Offset: h.Address + uint64(p.opt.Generation.DataOffset) + shmring.HeaderSize, ID: h.ID}
}

// place returns address and id of an object, without a signature.
func (p *Pool) place(o *shmstore.Object) serde.Address {
	h := o.Handle()
	return serde.Address{Address: h.Offset - uint64(p.opt.Generation.DataOffset) - shmring.HeaderSize, ID: h.ID}
}

// record returns what a pool keeps of an object.
func record(o *shmstore.Object) *poolObject { return o.Record.(*poolObject) }

// needed returns the count of reads at which every handle of an object is read.
func (p *Pool) needed(o *poolObject) int64 { return o.uses*int64(p.readers) - o.writtenOff }

// rebaseAt is the count of reads from which an idle object starts again at 0, far
// from where an int32 ends. One that is never idle is not used any more then.
const rebaseAt = 1 << 30

func (poolOwner) NewObject() *shmstore.Object {
	o := new(poolObject)
	o.Record = o
	return &o.Object
}

// Commit has nothing to do: the handle was signed when its chunk was filled, outside the lock.
func (poolOwner) Commit(*shmstore.Object) {}

func (w poolOwner) Usable(r *shmstore.Object) bool {
	o := record(r)
	return w.p.canUse(o.counts, 1) && w.p.reads(o) < rebaseAt
}

func (w poolOwner) Use(r *shmstore.Object, n int) (int64, error) {
	o := record(r)
	return w.p.use(&o.counts, o.Key(), n)
}

func (poolOwner) Sent(r *shmstore.Object, uses int64) { record(r).sent(uses) }

func (w poolOwner) TakeBack(r *shmstore.Object, n int, uses int64) {
	w.p.undoUse(&record(r).counts, n, uses)
}

// Unread: complete counts are proof unless the engine rereads. After a long time, some reader of
// an aborted handle may still be inside unless nobody has read since the object was last idle, or
// everything was read; the counts can't tell whose reads were whose.
func (w poolOwner) Unread(r *shmstore.Object, late bool) bool {
	o := record(r)
	reads := w.p.reads(o)
	if reads >= w.p.needed(o) {
		return w.p.rereads && !late
	}
	return !late || reads != o.idleReads
}

// Idle makes the counts agree: from now on the object needs what is used from now on.
func (w poolOwner) Idle(r *shmstore.Object) {
	o := record(r)
	reads := w.p.reads(o)
	if reads >= rebaseAt || reads < 0 || o.uses*int64(w.p.readers) >= rebaseAt {
		mem.Store32(w.p.payload(r), 0)
		reads, o.uses = 0, 0
	}
	o.idleReads = reads
	o.writtenOff = o.uses*int64(w.p.readers) - reads
}

// Word is the count of reads at which every handle is read.
func (w poolOwner) Word(r *shmstore.Object) uint32 {
	return uint32(min(max(w.p.needed(record(r)), 0), math.MaxUint32))
}

func (w poolOwner) Restore(r *shmstore.Object, word uint32, inUse bool) {
	o, h := record(r), w.p.place(r)
	o.signature = w.p.chunks.sign(r.Key(), h.Address, h.ID)
	// So many uses that needed is what it was, and not none if there were some.
	needed, n := int64(word), int64(w.p.readers)
	o.uses = (needed + n - 1) / n
	o.writtenOff = o.uses*n - needed
	if inUse {
		o.idleReads = -1
	}
}

func (w poolOwner) Reset(readers int, objects iter.Seq[*shmstore.Object]) {
	w.p.readers = readers
	for r := range objects {
		o := record(r)
		w.p.reset(&o.counts)
		o.writtenOff, o.idleReads = 0, 0
		h := w.p.place(r)
		_ = w.p.chunks.guard(&h, func() error {
			mem.Store32(w.p.payload(r), 0)
			return nil
		})
	}
}

func (poolOwner) Check(r *shmstore.Object) error { return record(r).check() }
