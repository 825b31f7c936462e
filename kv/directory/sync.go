package directory

import (
	"fmt"
	"slices"
	"time"
)

// fullSync is a worker that tells all chunks of one location, in batches. Reports that come meanwhile are applied: they
// are younger than the batches, so what was evicted meanwhile is not admitted by a batch.
type fullSync struct {
	id       string
	location string
	batches  int
	received []uint64     // a bit for each batch
	missing  int          // batches
	evicted  map[Key]bool // false was admitted again; its room stays in the map, so it counts
	last     time.Time    // when something came
	complete bool
}

// remember keeps that a chunk was evicted during a synchronisation. It reports whether there was room.
func (d *Directory) remember(s *fullSync, k Key) bool {
	if _, has := s.evicted[k]; !has {
		if len(s.evicted) >= maxEvicted || d.evicted >= maxAllEvicted {
			return false
		}
		d.evicted++
	}
	if s.evicted == nil {
		s.evicted = map[Key]bool{}
	}
	s.evicted[k] = true
	return true
}

// admit tells that a chunk was admitted during a synchronisation.
func (s *fullSync) admit(k Key) {
	if s.evicted[k] {
		s.evicted[k] = false
	}
}

// setSync makes s the synchronisation of a worker, and forgets what another one has remembered.
func (d *Directory) setSync(w *worker, s *fullSync) {
	if w.sync != nil {
		d.evicted -= len(w.sync.evicted)
	}
	w.sync = s
}

func (s *fullSync) has(batch int) bool { return s.received[batch/64]&(1<<(batch%64)) != 0 }

// StartSync empties a location, and begins to take all its chunks in so many batches. While another synchronisation of
// the worker is under way the error is ErrSyncing. One that has begun may be begun again, which changes nothing.
func (d *Directory) StartSync(id ID, location, sync string, batches int) error {
	if batches < 0 || batches > maxBatches || len(sync) > 2*maxName {
		return fmt.Errorf("%w: a full synchronisation in %d batches; %d are the most", errInvalid, batches, maxBatches)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.worker(id)
	if w == nil {
		return unknown(id)
	}
	d.expireSync(w)
	if s := w.sync; s != nil && !s.complete {
		if s.id != sync || s.location != location || s.batches != batches {
			return fmt.Errorf("%w: by %q", ErrSyncing, s.id)
		}
		s.last = d.o.Now() // the worker has not got the answer
		return nil
	}
	l, err := d.location(w, location, true)
	if err != nil {
		return err
	}
	d.change(w)
	d.clear(l)
	w.heal(l)
	d.setSync(w, &fullSync{
		id: sync, location: location, batches: batches, missing: batches, received: make([]uint64, (batches+63)/64),
		last: d.o.Now(),
	})
	return nil
}

// heal notes that all of a location is being told. Other stale ones are wanted still, unless this one was not stale: then
// the worker tells what it can, and has no more to tell. LMCache's tell of their memory only, and do not store meanwhile.
func (w *worker) heal(l *location) {
	was := l.gap
	l.gap, w.wants = false, ""
	if was && slices.ContainsFunc(w.locations, func(l *location) bool { return l.gap }) {
		w.wants = reportsLost
	}
}

// syncOf returns a synchronisation that is under way.
func (d *Directory) syncOf(id ID, sync string) (*worker, error) {
	w := d.worker(id)
	switch {
	case w == nil:
		return nil, unknown(id)
	case w.sync == nil || w.sync.id != sync || w.sync.complete:
		return nil, fmt.Errorf("%w: full synchronisation %q is not under way", errInvalid, sync)
	}
	return w, nil
}

// SyncBatch takes one batch of chunks, the first of which is 0. A batch may come again.
func (d *Directory) SyncBatch(id ID, location, sync string, batch int, keys []Key) error {
	for {
		n := min(piece, len(keys))
		rest := keys[n:]
		if err := d.syncBatch(id, location, sync, batch, keys[:n], len(rest) == 0); err != nil || len(rest) == 0 {
			return err
		}
		keys = rest
	}
}

func (d *Directory) syncBatch(id ID, location, sync string, batch int, keys []Key, last bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	w, err := d.syncOf(id, sync)
	if err != nil {
		return err
	}
	s := w.sync
	if batch < 0 || batch >= s.batches || location != s.location {
		return fmt.Errorf("%w: batch %d of %d at %q, not %q", errInvalid, batch, s.batches, location, s.location)
	}
	l, err := d.location(w, location, true)
	if err != nil {
		return err
	}
	d.change(w)
	for _, k := range keys {
		if s.evicted[k] {
			continue
		}
		d.touch(l, k)
		if err := d.add(l, k); err != nil {
			return err
		}
		d.counts.Admitted++
	}
	s.last = d.o.Now()
	if last && !s.has(batch) {
		s.received[batch/64] |= 1 << (batch % 64)
		s.missing--
	}
	return nil
}

// EndSync tells that all batches were sent. Those that did not come are asked for by SyncStatus, and after them comes
// another EndSync.
func (d *Directory) EndSync(id ID, sync string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	w, err := d.syncOf(id, sync)
	if err != nil {
		return err
	}
	w.sync.last = d.o.Now()
	if w.sync.missing == 0 {
		d.change(w)
		d.evicted -= len(w.sync.evicted)
		w.sync.complete, w.sync.evicted, w.sync.received = true, nil, nil
		d.counts.Synced++
	}
	return nil
}

// SyncStatus is how far a full synchronisation is.
type SyncStatus struct {
	Complete bool
	// Progress is which part of all workers is not in the midst of one, and has not failed in one, 0 to 1.
	Progress float64
	// Release is whether the worker may go on with what changes its chunks.
	Release bool
	Missing []int // batches that have not come
}

// SyncStatus returns it. A synchronisation that is not known is not complete.
func (d *Directory) SyncStatus(id ID, sync string) (s SyncStatus) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ready := 0
	for _, i := range d.instances {
		for _, w := range i.workers {
			if d.expireSync(w); (w.sync == nil || w.sync.complete) && w.wants != retry {
				ready++
			}
		}
	}
	if d.workers > 0 {
		s.Progress = float64(ready) / float64(d.workers)
	}
	w := d.worker(id)
	if w != nil && w.sync != nil && w.sync.id == sync {
		s.Complete = w.sync.complete
		for i := 0; i < w.sync.batches && !s.Complete && len(s.Missing) < maxMissing; i++ {
			if !w.sync.has(i) {
				s.Missing = append(s.Missing, i)
			}
		}
	}
	s.Release = len(s.Missing) == 0 && (s.Progress >= d.o.Release || w != nil && w.sync == nil)
	return s
}

const retry = "sync_failed_retry" // LMCache's own word for it

// expireSync ends a synchronisation of which nothing has come for long.
func (d *Directory) expireSync(w *worker) {
	if s := w.sync; s != nil && !s.complete && d.o.Now().Sub(s.last) > d.o.SyncTimeout {
		d.failSync(w)
	}
}

// failSync ends a synchronisation; the location has a part of its chunks, and another one is wanted.
func (d *Directory) failSync(w *worker) {
	if l, _ := d.location(w, w.sync.location, false); l != nil {
		l.gap = true
	}
	d.setSync(w, nil)
	w.wants = retry
	d.change(w)
}
