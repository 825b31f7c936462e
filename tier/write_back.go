package tier

import (
	"container/list"
	"context"
	"sync"
)

// writeBack writes what is in memory to the lower levels, in the background. A pending write is an object
// that levels have not got; all of them are the backlog. What happens to one, and who does it:
//
//   - Begin. Put, a Commit of a client's lease, or a transfer that copies to faster levels pins the object
//     under the lease "ringcache store: pending writes", and enqueues it for its levels (pending_write.go).
//     Options.MaxBacklog, the quota of the tenant and half of the objects of memory are the limits: beyond
//     them Put writes itself, and the object of a Commit is enqueued without a pin, which it gets when it is
//     its turn, if memory still has it. What is stored again is a presumed write: it is pinned only while its
//     level answers, and goes when the level has the object.
//   - Write. A worker takes a batch off the front of a level's queue, a parent before its children, and calls
//     the level without the lock (write_back_batch.go). The level reads through a check of the checksum that
//     Put took of the bytes, or, after a Commit or a restart, the worker just before.
//   - End. The level has the object, or answers with any other error than ErrUnavailable, which is
//     counted. With its last level the pending write ends, and the pin too.
//   - Retry. The level answered ErrUnavailable: the object goes back to the front of the queue, and health
//     pauses the writes to the level.
//   - Delete takes a pending write off all levels, and restores it if the object could not be deleted.
//   - Close leaves the pins. So does a kill: the store that takes over the memory level finds in the lease
//     what was pending, and writes it to levels of Back and Through (write_back_restart.go). It also writes
//     what leases of clients pin. Copies for levels of Around, and what nobody pinned, are not written any more.
//   - Drain waits for the end of all of them.
//
// mu guards all fields below it. Under mu the part calls the memory level, whose leases do no input or
// output, and what has a leaf lock: workers, health, report. It never calls the fetcher.
type writeBack struct {
	*shared
	lease     Lease
	maxPinned int // pending writes; 0 is no limit

	mu       sync.Mutex
	stopped  bool // Close has begun: nothing is written any more
	pending  map[Key]*pendingWrite
	unpinned unpinned
	bytes    int64            // of pending writes that are charged
	bytesOf  map[string]int64 // the same by tenant
	queues   []*writeQueue    // one for each lower level
	writers  int              // workers that write
	budget   budget           // of what they write
	blocked  blocked          // keys that are being deleted
	// missed counts what was stored again since the last Drain, and went from memory, or was too much to
	// note, before a level was asked whether it has it.
	missed int
	// refused counts the writes since the last Drain that the backlog had no room for, and whose objects
	// memory did not keep until there was some, or that were too many to note.
	refused int
	// smaller is closed when a pending write ends; nil if nobody waits.
	smaller chan struct{}
}

// writeQueue is what is to be written to one level, in the order in which it was stored.
type writeQueue struct {
	level   *lower
	list    list.List // of *pendingWrite
	writers int       // workers that write to the level
}

// pendingID is the ID of the lease that pins pending writes. It is the same after a restart, so that the next
// store finds them.
const pendingID = "ringcache store: pending writes"

// newWriteBack makes the part. lease is the one that pins pending writes.
func newWriteBack(sh *shared, lease Lease) *writeBack {
	o := sh.options
	w := &writeBack{
		shared: sh, lease: lease, maxPinned: sh.memory.Segment().Objects / 2,
		pending: map[Key]*pendingWrite{}, bytesOf: map[string]int64{}, blocked: blocked{},
		budget: newBudget(o.MaxBytesInFlight-threeQuarters(o.MaxBytesInFlight), nil),
	}
	for _, l := range sh.lower {
		w.queues = append(w.queues, &writeQueue{level: l})
	}
	return w
}

// stop ends all waits for the backlog. Writes that fail from now on stay pending.
func (w *writeBack) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.notifyDrain()
}

// notifyDrain wakes those who wait for the backlog to get smaller.
func (w *writeBack) notifyDrain() {
	if w.smaller != nil {
		close(w.smaller)
		w.smaller = nil
	}
}

// block keeps workers from writing keys until unblock.
func (w *writeBack) block(keys []Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blocked.add(keys)
}

// unblock ends what block began, when the deletion is over.
func (w *writeBack) unblock(keys []Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blocked.remove(keys)
	w.workers.signal()
}

// waitIdle waits until no worker writes a key that is blocked.
func (w *writeBack) waitIdle(ctx context.Context, k Key) error {
	w.mu.Lock()
	p := w.pending[k]
	if p == nil || p.writing == 0 {
		w.mu.Unlock()
		return nil
	}
	if p.idle == nil {
		p.idle = make(chan struct{})
	}
	idle := p.idle
	w.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// cancel takes pending writes of keys off all levels, and returns for each key the levels that had not got
// it.
func (w *writeBack) cancel(keys []Key) []levelSet {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := make([]levelSet, len(keys))
	for i, k := range keys {
		if p := w.pending[k]; p != nil {
			left[i] = p.left
			w.remove(p, p.left)
		}
	}
	return left
}

// restore adds what cancel took off, as the first to be written: its children may be in the queues.
func (w *writeBack) restore(k Key, levels levelSet) {
	found := w.memory.Stat(context.Background(), []Key{k})[0]
	if found.Err != nil {
		return
	}
	w.add(levels, found.Object)
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.pending[k]; p != nil {
		w.expedite(p, levels)
	}
}

// discard deletes from memory what is known to be damaged. If another level has not got it yet, it is
// discarded with the write to that one. What a client's lease has pinned stays.
func (w *writeBack) discard(k Key) { w.memory.Delete(context.Background(), []Key{k}) }
