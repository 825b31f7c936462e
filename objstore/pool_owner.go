package objstore

import (
	"iter"
	"math"

	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/serde"
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
	signature  signature
}

// reads returns the read count of an object as it is in the segment now.
func (p *Pool) reads(o *poolObject) int64 { return readCount(p.bytesStore.Chunk(o)) }

// needed returns the count of reads at which every handle of an object is read.
func (p *Pool) needed(o *poolObject) int64 { return o.uses*int64(p.readers) - o.writtenOff }

// rebaseAt is the count of reads from which an idle object starts again at 0, far
// from where an int32 ends. One that is never idle is not used any more then.
const rebaseAt = 1 << 30

func (poolOwner) NewRecord() shmstore.Record { return new(poolObject) }

func (w poolOwner) Commit(r shmstore.Record) { w.sign(r.(*poolObject)) }

func (w poolOwner) sign(o *poolObject) {
	if w.p.opt.Generation.Signed {
		o.signature = sign(w.p.chunks.seg.Secret(), o.Key(), o.Address(), o.ID())
	}
}

func (w poolOwner) Usable(r shmstore.Record) bool {
	o := r.(*poolObject)
	return w.p.canTake(o.counts, 1) && w.p.reads(o) < rebaseAt
}

func (w poolOwner) Use(r shmstore.Record, n int) (int64, error) {
	o := r.(*poolObject)
	return w.p.take(&o.counts, o.Key(), n)
}

func (poolOwner) Sent(r shmstore.Record, uses int64) { r.(*poolObject).sent(uses) }

func (w poolOwner) TakeBack(r shmstore.Record, n int, uses int64) {
	w.p.takeBack(&r.(*poolObject).counts, n, uses)
}

func (w poolOwner) Done(r shmstore.Record) bool {
	o := r.(*poolObject)
	return !w.p.rereads && w.p.reads(o) >= w.p.needed(o)
}

// Quiet: some reader of an aborted handle may be inside unless nobody has read since the
// object was last idle, or everything was read; the counts don't show whose reads were
// whose.
func (w poolOwner) Quiet(r shmstore.Record) bool {
	o := r.(*poolObject)
	reads := w.p.reads(o)
	return reads >= w.p.needed(o) || reads == o.idleReads
}

// Idle makes the counts agree: from now on the object needs what is used from now on.
func (w poolOwner) Idle(r shmstore.Record) {
	o := r.(*poolObject)
	reads := w.p.reads(o)
	if reads >= rebaseAt || reads < 0 || o.uses*int64(w.p.readers) >= rebaseAt {
		mem.Store32(w.p.bytesStore.Chunk(o), 0)
		reads, o.uses = 0, 0
	}
	o.idleReads = reads
	o.writtenOff = o.uses*int64(w.p.readers) - reads
}

// Word is the count of reads at which every handle is read.
func (w poolOwner) Word(r shmstore.Record) uint32 {
	return uint32(min(max(w.p.needed(r.(*poolObject)), 0), math.MaxUint32))
}

func (w poolOwner) Restore(r shmstore.Record, word uint32, inUse bool) {
	o := r.(*poolObject)
	w.sign(o)
	// So many uses that needed is what it was, and not none if there were some.
	needed, n := int64(word), int64(w.p.readers)
	o.uses = (needed + n - 1) / n
	o.writtenOff = o.uses*n - needed
	if inUse {
		o.idleReads = -1
	}
}

func (w poolOwner) Reset(readers int, objects iter.Seq[shmstore.Record]) {
	w.p.readers = readers
	for r := range objects {
		o := r.(*poolObject)
		w.p.reset(&o.counts)
		o.writtenOff, o.idleReads = 0, 0
		_ = w.p.chunks.guard(serde.Address{Address: o.Address()}, func() error {
			mem.Store32(w.p.bytesStore.Chunk(o), 0)
			return nil
		})
	}
}

func (poolOwner) Check(r shmstore.Record) error { return r.(*poolObject).check() }
