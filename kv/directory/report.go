package directory

import "fmt"

// A Report is one change at a location.
type Report struct {
	Evicted bool // or admitted
	Key     Key
	// Number counts the reports of a location from 0 on, so that a lost one is noticed. A negative one is of a source
	// that does not count.
	Number int64
}

// Apply applies reports of a worker about one location, in their order.
func (d *Directory) Apply(id ID, location string, reports []Report) error {
	for len(reports) > 0 {
		n := min(piece, len(reports))
		if err := d.apply(id, location, reports[:n]); err != nil {
			return err
		}
		reports = reports[n:]
	}
	return nil
}

func (d *Directory) apply(id ID, name string, reports []Report) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.worker(id)
	if w == nil {
		return unknown(id)
	}
	l, err := d.location(w, name, true)
	if err != nil {
		return err
	}
	d.change(w)
	for _, r := range reports {
		if r.Number >= 0 {
			d.number(l, r.Number)
		}
		syncing := w.sync != nil && !w.sync.complete && w.sync.location == name
		d.touch(l, r.Key)
		if r.Evicted {
			d.remove(l, r.Key)
			d.counts.Evicted++
			if syncing && !d.remember(w.sync, r.Key) {
				d.failSync(w)
			}
			continue
		}
		if syncing {
			w.sync.admit(r.Key)
		}
		if err := d.add(l, r.Key); err != nil {
			return err
		}
		d.counts.Admitted++
	}
	return nil
}

// number looks whether a report is the next one.
func (d *Directory) number(l *location, n int64) {
	next := l.last + 1
	if !l.numbered {
		if next = 0; !l.worker.fresh {
			next = n // the reports before it were made before the directory knew the worker
		}
	}
	if n != next {
		d.counts.Gaps++
		d.lost(l)
	}
	l.last, l.numbered = n, true
}

func (d *Directory) lost(l *location) {
	l.gap = true
	l.worker.wants = reportsLost
}

const reportsLost = "reports_lost" // why a full synchronisation is wanted

// Lost tells that reports of a worker were lost, for sources that notice it themselves: all its locations are
// stale, and those of which nothing has come yet.
func (d *Directory) Lost(id ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w := d.worker(id); w != nil {
		d.change(w)
		d.lostAll(w)
	}
}

func (d *Directory) lostAll(w *worker) {
	if w.fresh && len(w.locations) == 0 {
		d.counts.Gaps++
	}
	w.wants = reportsLost
	w.fresh = false
	for _, l := range w.locations {
		if !l.gap {
			d.counts.Gaps++
		}
		d.lost(l)
	}
}

func (d *Directory) add(l *location, k Key) error {
	for d.table.pairs >= d.o.MaxEntries {
		if !d.sweep() {
			d.counts.Refused++
			d.lost(l)
			return fmt.Errorf("%w: there are %d entries", ErrFull, d.table.pairs)
		}
	}
	if d.table.add(k, l.holder) {
		l.chunks++
		d.counts.Entries++
	}
	return nil
}

func (d *Directory) remove(l *location, k Key) {
	if d.table.remove(k, l.holder) {
		l.chunks--
		d.counts.Entries--
	}
}

// Clear empties the locations of a worker that match. What is known of them is all that there is, then. It returns how
// many chunks other locations of the worker have.
func (d *Directory) Clear(id ID, match func(location string) bool) (rest int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.worker(id)
	if w == nil {
		return 0
	}
	d.change(w)
	all := true
	for _, l := range w.locations {
		if match(l.name) {
			d.clear(l)
			l.gap = false
		} else {
			all = false
			rest += l.chunks
		}
	}
	w.fresh = w.fresh || all
	return rest
}
