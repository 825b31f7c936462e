package tier

import (
	"container/list"
	"context"
	"errors"
)

// pendingWrite is an object that lower levels are to get. The lock of the write-back part guards it.
//
// A pending write is pinned, by the lease of the write-back part, so that memory keeps the object until the
// levels have it. The exception is a presumed one: its object was stored again, so that as a rule the levels
// have it already. For a level that can't be written to now it is not pinned, and takes nothing of the
// limits, until the level turns out to lack it.
type pendingWrite struct {
	key      Key // never changes, so that workers need no lock for it
	object   Object
	offset   uint64 // in the segment, when it was pinned last
	summed   bool   // sum is known
	sum      uint32 // CRC-32C of the bytes when they were right
	pinned   bool
	presumed bool
	recheck  bool     // levels may have the object: they are asked before it is written
	charged  bool     // its bytes count against the limits: it is pinned, and left is not empty
	users    int      // calls of Put that read its bytes in memory
	left     levelSet // that have not got the object
	writing  levelSet // of left, or deleted from it: that a worker writes to
	queued   [maxLower]*list.Element
	idle     chan struct{} // closed when no worker writes it; nil if nobody waits
}

// maxUnpinned bounds the pending writes that are not pinned: each takes less than a kilobyte.
const maxUnpinned = 1 << 16

// add has objects that are in memory written to levels. What these will not get, since the backlog has no
// room or memory has lost it, is counted; Drain reports the former.
func (w *writeBack) add(levels levelSet, objects ...Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range objects {
		w.refused += w.addOne(levels, o)
	}
}

// addCopy is add for an object that a slower level has.
func (w *writeBack) addCopy(levels levelSet, o Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.addOne(levels, o)
}

// addOne is add for one object. It returns how many writes the backlog had no room for.
func (w *writeBack) addOne(levels levelSet, o Object) (refused int) {
	err := w.pinAndEnqueue(o, levels)
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrEnded) {
		err = errCancelled
	}
	for _, l := range w.lower {
		if err != nil && levels.has(l) {
			l.written(o, err)
			if errors.Is(err, errQuota) {
				refused++
			}
		}
	}
	return refused
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
	w.addUnpinned(found.Object, unwritable)
	return rest
}

// addPresumed is addStoredAgain for the lease of a client, which can't write anything itself: what has no
// room is not pinned.
func (w *writeBack) addPresumed(o Object) {
	if rest := w.addStoredAgain(o.Key, w.levelsWith(Through, Back)); rest != 0 {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.addUnpinned(o, rest)
	}
}

// addUnpinned enqueues an object that was stored again without pinning it.
func (w *writeBack) addUnpinned(o Object, levels levelSet) {
	if levels == 0 {
		return
	}
	p := w.pending[o.Key]
	if p == nil {
		if w.unpinned == maxUnpinned {
			w.missed++
			return
		}
		p = &pendingWrite{key: o.Key, object: o, presumed: true}
		w.pending[o.Key] = p
		w.unpinned++
	}
	p.recheck = true
	w.enqueue(p, levels)
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
	p.presumed = false
	w.enqueue(p, levels)
	return nil
}

// hasRoom reports whether the limits have room for an object.
func (w *writeBack) hasRoom(o Object) bool {
	if o.Size > w.options.MaxBacklog-w.bytes || w.maxPinned > 0 && len(w.pending)-w.unpinned >= w.maxPinned {
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
		w.unpinned--
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
	if p.presumed && p.pinned && p.left != 0 && p.left&^w.unwritable() == 0 {
		w.unpin(p)
	}
	if p.left == 0 && w.pending[p.key] == p {
		delete(w.pending, p.key)
		if p.pinned {
			w.lease.Unpin([]Key{p.key})
		} else {
			w.unpinned--
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

// unpin keeps a presumed write as one that is not pinned.
func (w *writeBack) unpin(p *pendingWrite) {
	if w.unpinned == maxUnpinned {
		return
	}
	w.uncharge(p)
	w.lease.Unpin([]Key{p.key})
	p.pinned = false
	w.unpinned++
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
