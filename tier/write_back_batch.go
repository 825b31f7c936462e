package tier

import (
	"container/list"
	"errors"
	"fmt"
	"slices"
)

// maxSkipped is how many pending writes of a level are looked at that can't be written yet.
const maxSkipped = 256

// nextWork returns the next batch for a worker to write, or nil: of one level, in the order in which the
// objects were stored. At most half of the workers write.
func (w *writeBack) nextWork() func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.writers >= w.options.MaxCalls/2 {
		return nil
	}
	for _, q := range w.queues {
		if !q.level.health.isWritable() {
			continue
		}
		if batch, size := w.nextBatch(q); len(batch) > 0 {
			w.writers++
			q.writers++
			w.budget.add(size, nil, 1)
			return func() { w.write(q, batch, size) }
		}
	}
	return nil
}

// nextBatch takes pending writes off a queue. A child waits until its parent is written, or goes behind it in
// the same batch. If all that is looked at waits, and nobody writes what it waits for, the order gives way:
// the parents may be far behind in the queue, or name each other.
func (w *writeBack) nextBatch(q *writeQueue) (batch []*pendingWrite, size int64) {
	batch, size, waiting := w.takeBatch(q, true)
	if len(batch) == 0 && waiting && q.writers == 0 {
		batch, size, _ = w.takeBatch(q, false)
	}
	return batch, size
}

// takeBatch is nextBatch with or without the order of parents. waiting is false if there was something to
// write, but no room for it.
func (w *writeBack) takeBatch(q *writeQueue, inOrder bool) (batch []*pendingWrite, size int64, waiting bool) {
	inBatch := map[Key]bool{}
	skipped := 0
	var next *list.Element
	for e := q.list.Front(); e != nil && len(batch) < maxBatch && skipped < maxSkipped; e = next {
		next = e.Next()
		p := e.Value.(*pendingWrite)
		if inOrder && w.waitsForParent(p, q.level, inBatch) || w.blocked[p.key] > 0 {
			skipped++
			continue
		}
		if len(batch) == 0 && !w.budget.hasRoom(p.object.Size) ||
			len(batch) > 0 && size+p.object.Size > min(batchBytes, w.budget.limit-w.budget.used) {
			return batch, size, false
		}
		q.list.Remove(e)
		p.queued[q.level.index] = nil
		p.writing |= q.level.bit()
		inBatch[p.key] = true
		batch = append(batch, p)
		size += p.object.Size
	}
	return batch, size, true
}

// waitsForParent reports whether the level is to get the parent before p, and the parent is not in the batch
// yet.
func (w *writeBack) waitsForParent(p *pendingWrite, l *lower, inBatch map[Key]bool) bool {
	parent, ok := p.object.ParentKey()
	first := w.pending[parent]
	return ok && first != nil && first.left.has(l) && !inBatch[parent]
}

// write writes a batch to a level.
func (w *writeBack) write(q *writeQueue, batch []*pendingWrite, size int64) {
	errs := w.call(q.level, batch)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writers--
	q.writers--
	w.budget.add(size, nil, -1)
	l := q.level
	var again []*pendingWrite
	var cause error
	for i, p := range slices.Backward(batch) { // what goes back into the queue keeps its order
		p.writing &^= l.bit()
		switch err := errs[i]; {
		case !p.left.has(l): // Delete took it off
			w.review(p)
		case err != nil && (isTemporary(err) || w.stopped):
			p.queued[l.index] = q.list.PushFront(p)
			again, cause = append(again, p), err
		default:
			l.health.writeAnswered()
			w.remove(p, l.bit())
			if errors.Is(err, errChanged) {
				w.discard(p.key)
			}
		}
	}
	if len(again) == 0 {
		return
	}
	first := !w.stopped && l.health.pauseWrites(cause)
	for _, p := range again {
		w.review(p)
	}
	if first {
		w.reviewQueue(q)
	}
}

// isTemporary reports whether a write is to be tried again: the level can't be written to, and may be later.
func isTemporary(err error) bool { return errors.Is(err, ErrUnavailable) }

// call has a level write a batch, and returns the errors of the objects.
func (w *writeBack) call(l *lower, batch []*pendingWrite) []error {
	errs := make([]error, len(batch))
	puts := make([]Put, 0, len(batch))
	places := make([]int, 0, len(batch))
	there := w.alreadyThere(l, batch, errs)
	for i, p := range batch {
		if there[p] || errs[i] != nil {
			continue
		}
		var put Put
		if put, errs[i] = w.checked(p); errs[i] != nil {
			switch {
			case w.life.ctx.Err() != nil || errors.Is(errs[i], errCancelled):
			case errors.Is(errs[i], errQuota):
				l.written(put.Object, errs[i])
			default:
				errs[i] = fmt.Errorf("tier: object %v can't be written, memory has lost it: %w (%s)",
					p.key, ErrNotFound, errs[i].Error())
				l.refused(put.Object, errs[i])
			}
			continue
		}
		puts = append(puts, put)
		places = append(places, i)
	}
	if len(puts) > 0 {
		begin := w.begun()
		l.put(w.life.ctx, puts)
		w.worked("write back", l, begin, len(puts), func(i int) (Key, int64, error) { return puts[i].Object.Key, puts[i].Object.Size, puts[i].Err })
	}
	for i, put := range puts {
		errs[places[i]] = put.Err
		switch {
		case put.Err == nil:
			l.written(put.Object, nil)
		case !isTemporary(put.Err) && w.life.ctx.Err() == nil:
			l.refused(put.Object, put.Err)
		}
	}
	return errs
}

// checked returns a pending write as a level gets it. Other processes can write to memory, so the level reads
// through a check of the checksum that Put took. Of what a client wrote nobody knows one: it is computed here,
// and only what changes between here and the level is found.
func (w *writeBack) checked(p *pendingWrite) (Put, error) {
	w.mu.Lock()
	placed := w.lease.Pin([]Key{p.key})[0] // it may have been dropped, and stored again
	switch {
	case errors.Is(placed.Err, ErrFull) && !p.summed:
		w.mu.Unlock()
		return w.copied(p)
	case placed.Err != nil:
		defer w.mu.Unlock()
		return w.lost(p, placed.Err)
	}
	w.attach(placed)
	known, sum := p.summed, p.sum
	w.mu.Unlock()
	if !known {
		var computed summing
		get := []Get{{Key: p.key, To: &computed, NoUse: true}}
		if w.memory.Get(w.life.ctx, get); get[0].Err != nil {
			return Put{Object: placed.Object}, get[0].Err
		}
		sum = computed.sum
	}
	return Put{Object: placed.Object, From: &summed{key: p.key, rest: placed.Bytes, want: sum}}, nil
}

// copied is checked where the table of leases has no record for a pin: the level gets a copy. That is not for what Put
// took a checksum of, since only a pin shows that these are still the same bytes.
func (w *writeBack) copied(p *pendingWrite) (Put, error) {
	get := []Get{{Key: p.key, NoUse: true}}
	if w.memory.Get(w.life.ctx, get); get[0].Err == nil {
		return Put{Object: get[0].Object, Bytes: get[0].Bytes}, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost(p, get[0].Err)
}

// lost is checked for an object that memory could not give.
func (w *writeBack) lost(p *pendingWrite, err error) (Put, error) {
	switch {
	case p.pinned:
	case p.recheck && !p.beyond: // it was stored again
		w.missed++
		err = errCancelled
	default:
		w.refused++
		err = errQuota
	}
	return Put{Object: p.object}, err
}

// alreadyThere finds out which objects of a batch the level has already, if they are to be rechecked. errs
// gets the errors of those that the level can't be asked for.
func (w *writeBack) alreadyThere(l *lower, batch []*pendingWrite, errs []error) map[*pendingWrite]bool {
	var places []int
	var keys []Key
	w.mu.Lock()
	for i, p := range batch {
		if p.recheck {
			places = append(places, i)
			keys = append(keys, p.key)
		}
	}
	w.mu.Unlock()
	if len(keys) == 0 {
		return nil
	}
	there := map[*pendingWrite]bool{}
	found, _ := l.stat(w.life.ctx, keys)
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, f := range found {
		p := batch[places[i]]
		switch {
		case f.Err == nil:
			there[p] = true
		case isTemporary(f.Err):
			errs[places[i]] = f.Err
		default:
			p.presumed = false
		}
	}
	return there
}
