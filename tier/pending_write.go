package tier

import (
	"container/list"
	"context"
	"errors"
)

// pendingWrite is an object that lower levels are to get. The lock of the write-back part guards it.
//
// A pending write is pinned, by the lease of the write-back part, so that memory keeps the object until the
// levels have it. There are two exceptions, which take nothing of the limits until a worker writes them. What
// was committed when the backlog had no room for it waits without a pin: levels get it if memory still has it
// when its turn comes. And so does a presumed write for a level that can't be written to now: its object was
// stored again, so that as a rule the levels have it already.
type pendingWrite struct {
	key      Key // never changes, so that workers need no lock for it
	object   Object
	offset   uint64 // in the segment, when it was pinned last
	summed   bool   // sum is known
	sum      uint32 // CRC-32C of the bytes when they were right
	pinned   bool
	presumed bool
	beyond   bool     // the limits had no room for it: it is pinned only while a worker writes it
	recheck  bool     // levels may have the object: they are asked before it is written
	charged  bool     // its bytes count against the limits: it is pinned, and left is not empty
	users    int      // calls of Put that read its bytes in memory
	left     levelSet // that have not got the object
	writing  levelSet // of left, or deleted from it: that a worker writes to
	queued   [maxLower]*list.Element
	idle     chan struct{} // closed when no worker writes it; nil if nobody waits
}

// unpinned is what pending writes that are not pinned take on the heap.
type unpinned struct {
	writes int
	bytes  int64
}

// maxUnpinned bounds the bytes of unpinned: some 60,000 writes with texts of usual length.
const maxUnpinned = 32 << 20

// unpinnedBytes is what a pending write takes on the heap, about.
func unpinnedBytes(o Object) int64 {
	return 512 + int64(len(o.Key.Space)+len(o.Key.Name)+len(o.Parent)+len(o.Tenant))
}

// add counts a pending write of an object n times, 1 or -1. It reports whether there is room for it.
func (u *unpinned) add(o Object, n int) bool {
	size := unpinnedBytes(o)
	if n > 0 && u.bytes+size > maxUnpinned {
		return false
	}
	u.writes += n
	u.bytes += int64(n) * size
	return true
}

// add has objects that are in memory written to levels. What has no room in the backlog waits without a pin.
// What these will not get, since there is no room for that either, or memory has lost it, is counted; Drain
// reports the former.
func (w *writeBack) add(levels levelSet, objects ...Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range objects {
		err := w.pinAndEnqueue(o, levels)
		// Without room in the backlog, or in the memory level's table of leases.
		if p := w.pending[o.Key]; errors.Is(err, ErrFull) && (p == nil || !p.pinned) && w.addUnpinned(o, levels) {
			w.pending[o.Key].presumed, w.pending[o.Key].beyond = false, true
			continue
		}
		refused := w.countRefused(levels, o, err)
		if errors.Is(err, ErrFull) {
			w.refused += refused
		}
	}
}

// addCopy is add for an object that a slower level has: without room in the backlog there is no copy.
func (w *writeBack) addCopy(levels levelSet, o Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.countRefused(levels, o, w.pinAndEnqueue(o, levels))
}

// countRefused counts that levels will not get an object, and returns how many they are. Without an error
// there are none.
func (w *writeBack) countRefused(levels levelSet, o Object, err error) (n int) {
	if err == nil {
		return 0
	}
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrEnded) {
		err = errCancelled
	}
	for _, l := range w.lower {
		if levels.has(l) {
			l.written(o, err)
			n++
		}
	}
	return n
}

// addStoredAgain has an object that memory had when somebody stored it again written to the levels that lack
// it: they may be new, or may have lost it. Levels that can't be written to now are presumed to have the
// object until they are asked. It returns the levels for which there is no room.
func (w *writeBack) addStoredAgain(k Key, levels levelSet) (rest levelSet) {
	if levels == 0 {
		return 0
	}
	found := w.memory.Stat(context.Background(), []Key{k})[0]
	if found.Err != nil {
		return levels
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	unwritable := levels & w.unwritable()
	before := w.pending[k]
	presumed := before == nil || before.presumed
	if w.pinAndEnqueue(found.Object, levels&^unwritable) != nil {
		rest = levels &^ unwritable
	} else if p := w.pending[k]; p != nil {
		p.recheck, p.presumed = true, presumed
	}
	w.addStoredUnpinned(found.Object, unwritable)
	return rest
}

// addPresumed is addStoredAgain for the lease of a client, which can't write anything itself: what has no
// room is not pinned.
func (w *writeBack) addPresumed(o Object) {
	if rest := w.addStoredAgain(o.Key, w.levelsWith(Through, Back)); rest != 0 {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.addStoredUnpinned(o, rest)
	}
}

// addStoredUnpinned enqueues an object that was stored again, without pinning it.
func (w *writeBack) addStoredUnpinned(o Object, levels levelSet) {
	if levels == 0 {
		return
	}
	isNew := w.pending[o.Key] == nil
	if !w.addUnpinned(o, levels) {
		w.missed++
		return
	}
	p := w.pending[o.Key]
	p.presumed, p.recheck = p.presumed || isNew, true
}

// addUnpinned enqueues an object without pinning it, if there is room for one more.
func (w *writeBack) addUnpinned(o Object, levels levelSet) bool {
	p := w.pending[o.Key]
	if p == nil {
		if !w.unpinned.add(o, 1) {
			return false
		}
		o.Note = nil // it is read from memory again
		p = &pendingWrite{key: o.Key, object: o}
		w.pending[o.Key] = p
	}
	w.enqueue(p, levels)
	return true
}

// pinAndEnqueue pins an object that is in memory until levels have it. The error is why none of them will get
// it.
func (w *writeBack) pinAndEnqueue(o Object, levels levelSet) error {
	if levels == 0 {
		return nil
	}
	p := w.pending[o.Key]
	if (p == nil || !p.charged) && !w.hasRoom(o) {
		return errQuota
	}
	if p == nil || !p.pinned {
		placed := w.lease.Pin([]Key{o.Key})[0]
		if placed.Err != nil {
			return placed.Err
		}
		p = w.attach(placed)
	}
	p.presumed, p.beyond = false, false
	w.enqueue(p, levels)
	return nil
}

// hasRoom reports whether the limits have room for an object.
func (w *writeBack) hasRoom(o Object) bool {
	if o.Size > w.options.MaxBacklog-w.bytes || w.maxPinned > 0 && len(w.pending)-w.unpinned.writes >= w.maxPinned {
		return false
	}
	quota := w.quotas.Load().For(o.Tenant)
	return quota == 0 || o.Size <= quota-w.bytesOf[o.Tenant]
}

// attach notes an object that the lease has pinned as a pending write. It may be in another place than
// before, if memory had dropped it as damaged.
func (w *writeBack) attach(placed Placed) *pendingWrite {
	p := w.pending[placed.Object.Key]
	switch {
	case p == nil:
		p = &pendingWrite{key: placed.Object.Key}
		w.pending[placed.Object.Key] = p
	case !p.pinned:
		w.unpinned.add(p.object, -1)
	}
	p.pinned = true
	if p.object.Size != placed.Object.Size || p.offset != placed.Offset {
		p.summed = false
	}
	w.uncharge(p) // as the object that it was: this one may have another size, or tenant
	p.object, p.offset = placed.Object, placed.Offset
	w.charge(p)
	return p
}

// enqueue puts a pending write into the queues of levels.
func (w *writeBack) enqueue(p *pendingWrite, levels levelSet) {
	p.left |= levels
	w.charge(p)
	for _, q := range w.queues {
		if at := q.level.index; levels.has(q.level) && p.queued[at] == nil && !p.writing.has(q.level) {
			p.queued[at] = q.list.PushBack(p)
		}
	}
	w.workers.signal()
}

// expedite puts a pending write in front of the others of levels.
func (w *writeBack) expedite(p *pendingWrite, levels levelSet) {
	for _, q := range w.queues {
		if e := p.queued[q.level.index]; e != nil && levels.has(q.level) {
			q.list.MoveToFront(e)
		}
	}
}

// charge counts the bytes of what is pinned until levels have got it.
func (w *writeBack) charge(p *pendingWrite) {
	if !p.charged && p.pinned && p.left != 0 {
		p.charged = true
		w.bytes += p.object.Size
		w.bytesOf[p.object.Tenant] += p.object.Size
	}
}

// uncharge ends what charge counted.
func (w *writeBack) uncharge(p *pendingWrite) {
	if !p.charged {
		return
	}
	p.charged = false
	w.bytes -= p.object.Size
	if w.bytesOf[p.object.Tenant] -= p.object.Size; w.bytesOf[p.object.Tenant] == 0 {
		delete(w.bytesOf, p.object.Tenant)
	}
}

// remove takes levels off a pending write: because they have the object, or will not get it.
func (w *writeBack) remove(p *pendingWrite, levels levelSet) {
	p.left &^= levels
	for _, q := range w.queues {
		if e := p.queued[q.level.index]; e != nil && levels.has(q.level) {
			q.list.Remove(e)
			p.queued[q.level.index] = nil
		}
	}
	w.review(p)
}

// review does what follows after left, writing or users of a pending write have changed, or whether levels
// can be written to: it ends the charge, the pin, or the pending write.
func (w *writeBack) review(p *pendingWrite) {
	if p.writing == 0 && p.idle != nil {
		close(p.idle)
		p.idle = nil
	}
	if p.left == 0 {
		w.uncharge(p)
	}
	if p.writing != 0 || p.users != 0 {
		return
	}
	if p.pinned && p.left != 0 && (p.beyond || p.presumed && p.left&^w.unwritable() == 0) {
		w.unpin(p)
	}
	if p.left == 0 && w.pending[p.key] == p {
		delete(w.pending, p.key)
		if p.pinned {
			w.lease.Unpin([]Key{p.key})
		} else {
			w.unpinned.add(p.object, -1)
		}
		w.notifyDrain()
	}
}

// reviewQueue reviews what waits for a level that can't be written to any more.
func (w *writeBack) reviewQueue(q *writeQueue) {
	var next *list.Element
	for e := q.list.Front(); e != nil; e = next {
		next = e.Next()
		w.review(e.Value.(*pendingWrite))
	}
}

// unpin keeps a pending write as one that is not pinned.
func (w *writeBack) unpin(p *pendingWrite) {
	if !w.unpinned.add(p.object, 1) {
		return
	}
	w.uncharge(p)
	w.lease.Unpin([]Key{p.key})
	p.pinned, p.object.Note = false, nil
}

// unwritable returns the levels that background writes can't call now.
func (w *writeBack) unwritable() (set levelSet) {
	for _, l := range w.lower {
		if !l.health.isWritable() {
			set |= l.bit()
		}
	}
	return set
}
