package directory

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Change is what has become of a worker in a directory, for others that are to know the same.
type Change struct {
	Worker Worker
	// Gone is set if the worker was dropped, and Late if that was for want of a heartbeat.
	Gone, Late bool
	// Reset is set if all its locations were emptied before what Places have.
	Reset       bool
	Fresh, Away bool   // it has told everything since it began; see Directory.Away
	Wants       string // why a full synchronisation is wanted
	// Places are all its locations. Their order stays until the worker is reset.
	Places []ChangedPlace

	scanned bool // a part of all that the worker has
}

// ChangedPlace is a location of a worker, with what has changed there.
type ChangedPlace struct {
	Location      string
	Last          int64 // the number of the last report, if Numbered
	Numbered, Gap bool
	Cleared       bool // it was emptied before Held
	Held, Evicted []Key
}

// MaxPlaces is how many locations a worker has at most.
const MaxPlaces = maxLocations

// sharing is what is not told yet of changes, if Options.Shared is set.
type sharing struct {
	on       bool // Options.Shared
	now      func() time.Time
	unsaved  map[*worker]struct{}
	gone     map[ID]bool // workers of which others know and that were dropped; whether they were late
	touched  int         // keys, in all locations
	scanning bool        // workers are told with all that they have, part after part
	part     int
	rest     []scannedKey // of the last part
}

type scannedKey struct {
	at  *location
	key Key
}

// saving is what is not told yet of one worker.
type saving struct {
	elsewhere bool // another directory has told of it last
	told      bool // others know of it
	changed   bool // here, since it was told. A worker that was only taken over is not.
	reset     bool
	whole     bool // not all touched keys are known: all that it has is to be told again
	scanning  bool
}

// maxTouched bounds keys that are not told yet. A worker for whose keys there is no room is told again in full.
const maxTouched = 1 << 20

// take makes a worker one of this directory, where reports about it come. The caller has the lock, here and below.
func (x *sharing) take(w *worker) {
	if w.elsewhere {
		w.elsewhere = false
		w.Heartbeat = x.now()
		x.unsaved[w] = struct{}{}
	}
}

// change notes that something about a worker has changed by a report.
func (x *sharing) change(w *worker) {
	if x.on {
		x.take(w)
		w.changed = true
		x.unsaved[w] = struct{}{}
	}
}

// touch notes that a key was admitted or evicted. Whether it is there is looked up when it is told.
func (x *sharing) touch(l *location, k Key) {
	switch {
	case !x.on || l.worker.whole:
	case x.touched >= maxTouched:
		x.tellAll(l.worker)
	default:
		l.touched = append(l.touched, k)
		x.touched++
	}
}

func (x *sharing) untouch(l *location) {
	x.touched -= len(l.touched)
	l.touched = nil
}

func (x *sharing) tellAll(w *worker) {
	w.whole, w.scanning = true, false
	for _, l := range w.locations {
		x.untouch(l)
	}
	x.change(w)
}

// forget drops what is not told of a worker that goes.
func (x *sharing) forget(w *worker, late bool) {
	for _, l := range w.locations {
		x.untouch(l)
	}
	delete(x.unsaved, w)
	if w.told {
		x.gone[w.ID] = late
	}
}

// Changes returns what has changed since the last call, with about so many keys at most. It is to be called again until
// nothing comes. Who can't tell others of a change calls Failed with it. Workers of whom another directory has told are
// not in it.
//
// What a Change says is true at one moment: its numbers are those of the last reports that are in Held and Evicted.
// While a part is still to come, Gap is set.
func (d *Directory) Changes(keys int) (all []Change) {
	d.mu.Lock()
	defer d.mu.Unlock()
	const most = 128
	for id, late := range d.gone {
		if len(all) >= most {
			return all
		}
		delete(d.gone, id)
		all = append(all, Change{Worker: Worker{ID: id}, Gone: true, Late: late})
	}
	for {
		if !d.scanning {
			for w := range d.unsaved {
				if w.whole {
					w.whole, w.scanning, w.reset = false, true, true
					d.scanning, d.part = true, 0
					for _, l := range w.locations {
						l.cleared = false // reset says so
					}
				}
			}
		}
		for w := range d.unsaved {
			if w.whole || w.scanning && !w.reset {
				continue // in the next scan; at the end of this one
			}
			if keys <= 0 || len(all) >= most {
				return all
			}
			all = append(all, d.tell(w, &keys))
		}
		if !d.scanning || keys <= 0 || len(all) >= most {
			return all
		}
		all = append(all, d.scan(&keys)...)
		d.mu.Unlock() // others have a turn
		d.mu.Lock()
	}
}

// tell makes the change of one worker, with so many keys at most.
func (d *Directory) tell(w *worker, keys *int) Change {
	c := w.describe()
	c.Reset, w.reset = w.reset, false
	part := w.scanning
	for i, l := range w.locations {
		if w.scanning {
			break
		}
		p := &c.Places[i]
		p.Cleared, l.cleared = l.cleared, false
		n := min(*keys, len(l.touched))
		*keys -= n
		d.touched -= n
		for _, k := range l.touched[:n] {
			var single [1]uint32
			if has(d.table.holders(k, single[:0]), l.holder) {
				p.Held = append(p.Held, k)
			} else {
				p.Evicted = append(p.Evicted, k)
			}
		}
		if l.touched = l.touched[n:]; len(l.touched) > 0 {
			part = true
		} else {
			l.touched = nil
		}
	}
	if part {
		c.incomplete()
	}
	if !part || w.scanning {
		w.changed = false
		delete(d.unsaved, w)
	}
	w.told = true
	return c
}

// incomplete makes a change say what is true of it when nothing follows.
func (c *Change) incomplete() {
	for i := range c.Places {
		c.Places[i].Gap = true
	}
	if c.Fresh = false; c.Wants == "" {
		c.Wants = reportsLost
	}
}

func (w *worker) describe() Change {
	c := Change{Worker: w.Worker, Fresh: w.fresh, Away: w.away, Wants: w.wants}
	syncing := w.sync != nil && !w.sync.complete
	if syncing {
		c.Wants = retry // of whoever takes the worker over
	}
	for _, l := range w.locations {
		c.Places = append(c.Places, ChangedPlace{
			Location: l.name, Last: l.last, Numbered: l.numbered, Gap: l.gap || syncing && w.sync.location == l.name,
		})
	}
	return c
}

// scan returns the next part of all that the workers have which are told again in full.
func (d *Directory) scan(keys *int) (all []Change) {
	if len(d.rest) == 0 && d.part < parts {
		p := &d.table.parts[d.part]
		d.part++
		note := func(k Key, h uint32) {
			if l := d.locations[h]; l != nil && l.worker.scanning {
				d.rest = append(d.rest, scannedKey{l, k})
			}
		}
		for k, value := range p.chunks {
			if value&isList == 0 {
				note(k, value)
				continue
			}
			for _, h := range p.lists[value&^isList] {
				note(k, h)
			}
		}
	}
	n := min(*keys, len(d.rest))
	*keys -= n
	at := map[*worker]int{}
	for _, r := range d.rest[:n] {
		l, w := r.at, r.at.worker
		if d.locations[l.holder] != l || !w.scanning {
			continue // the worker has gone, or is told later
		}
		if _, begun := at[w]; !begun {
			at[w] = len(all)
			c := w.describe()
			c.scanned = true
			c.incomplete()
			all = append(all, c)
		}
		p := &all[at[w]].Places[slices.Index(w.locations, l)]
		p.Held = append(p.Held, r.key)
	}
	if d.rest = d.rest[n:]; len(d.rest) > 0 || d.part < parts {
		return all
	}
	d.rest, d.scanning = nil, false
	for _, i := range d.instances {
		for _, w := range i.workers {
			if w.scanning {
				w.scanning = false
				d.change(w)
			}
		}
	}
	return all
}

// Failed takes back a change of which others could not be told.
func (d *Directory) Failed(c Change) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.worker(c.Worker.ID)
	switch {
	case w == nil && c.Gone:
		d.gone[c.Worker.ID] = c.Late
	case w == nil || w.elsewhere:
	case c.Gone:
		w.reset = true
		d.change(w)
	case c.scanned || c.Reset && w.scanning:
		d.tellAll(w)
	default:
		w.reset = w.reset || c.Reset
		for i, p := range c.Places[:min(len(c.Places), len(w.locations))] {
			l := w.locations[i]
			l.cleared = l.cleared || p.Cleared
			for _, k := range p.Held {
				d.touch(l, k)
			}
			for _, k := range p.Evicted {
				d.touch(l, k)
			}
		}
		d.change(w)
	}
}

// Again makes Changes tell all of a worker again, unless another directory has told of it last.
func (d *Directory) Again(id ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w := d.worker(id); w != nil && !w.elsewhere && d.o.Shared {
		w.told = true
		d.tellAll(w)
	}
}

// Orphaned drops a worker of whom another directory has told, since nobody can tell whether it lives. Changes tells of
// it.
func (d *Directory) Orphaned(id ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w := d.worker(id); w != nil && w.elsewhere {
		d.drop(id, true)
		d.counts.Expired++
	}
}

// Follow applies a Change of another directory. kept says that the worker stays one of this directory: reports about
// it have come here since Changes told of it. If both have news of it, neither knows everything; then it is told again
// in full, and as one that has lost reports. The error is ErrUnknown for a worker that is not known from its beginning
// on: what another directory has told of it altogether is to be applied, with Reset. A Change that can't be is refused
// as fs.ErrInvalid.
func (d *Directory) Follow(c Change) (kept bool, err error) {
	if err := c.check(); err != nil {
		return false, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	id := c.Worker.ID
	w := d.worker(id)
	if w != nil && d.conflicts(w, c) {
		return true, nil
	}
	late, gone := d.gone[id]
	switch {
	case c.Gone:
		if w != nil {
			w.told = false
			d.drop(id, false)
		}
		delete(d.gone, id)
		return false, nil
	case gone && !late:
		return true, nil // Changes says so
	case w == nil && !c.Reset:
		delete(d.gone, id) // it lives
		return false, unknown(id)
	}
	_, mine := d.unsaved[w] // it was taken over, of which nobody has heard yet
	if c.Reset {
		if w != nil {
			w.told = false
			d.drop(id, false)
		}
		if d.workers >= d.o.MaxWorkers {
			return false, fmt.Errorf("%w: %d workers are registered", ErrFull, d.workers)
		}
		w = d.insert(&worker{Worker: c.Worker})
		if mine {
			d.unsaved[w] = struct{}{}
		}
	}
	delete(d.gone, id)
	w.told, w.elsewhere = true, !mine
	d.setSync(w, nil)
	return d.followPlaces(w, c)
}

// conflicts reports whether a worker stays one of this directory in spite of a change.
func (d *Directory) conflicts(w *worker, c Change) bool {
	news := w.changed || w.whole || w.scanning
	switch {
	case w.elsewhere || !news && !(c.Gone && c.Late):
		return false
	case news && !(c.Gone && c.Late):
		d.lostAll(w)
	}
	d.tellAll(w)
	return true
}

// followPlaces applies what a change says of locations. It lets go of the lock in between.
func (d *Directory) followPlaces(w *worker, c Change) (kept bool, err error) {
	for i, p := range c.Places {
		if i == len(w.locations) {
			if _, err := d.location(w, p.Location, true); err != nil {
				return false, err
			}
		}
		l := w.locations[i]
		if l.name != p.Location {
			return false, unknown(w.ID) // it has begun anew
		}
		if p.Cleared {
			d.clear(l)
			d.untouch(l)
			l.cleared = false
		}
		for _, some := range []struct {
			keys []Key
			held bool
		}{{p.Evicted, false}, {p.Held, true}} {
			for n, k := range some.keys {
				if n%piece == piece-1 {
					d.mu.Unlock()
					d.mu.Lock()
					if d.worker(w.ID) != w || d.conflicts(w, c) {
						return true, nil
					}
				}
				if !some.held {
					d.remove(l, k)
				} else if err := d.add(l, k); err != nil {
					l.partial = true
					return !w.elsewhere, err
				}
			}
		}
	}
	for i, p := range c.Places {
		l := w.locations[i]
		l.last, l.numbered, l.gap = p.Last, p.Numbered, p.Gap || l.partial
		if l.partial && c.Wants == "" {
			c.Wants = reportsLost
		}
	}
	beat := w.Heartbeat
	w.Worker, w.fresh, w.away, w.wants = c.Worker, c.Fresh, c.Away, c.Wants
	if !w.elsewhere {
		w.Heartbeat = beat
	}
	return !w.elsewhere, nil
}

func (c *Change) check() error {
	w := c.Worker
	bad := w.Instance == "" || len(w.Instance) > maxName || len(w.IP) > maxName || len(w.PeerURL) > maxName ||
		len(c.Wants) > maxName || len(c.Places) > maxLocations
	names := map[string]bool{}
	for _, p := range c.Places {
		bad = bad || len(p.Location) > maxName || names[p.Location]
		names[p.Location] = true
	}
	if bad {
		return fmt.Errorf("%w: a change of worker %.40q", errInvalid, w.Instance)
	}
	return nil
}

func newSharing(o Options) sharing {
	return sharing{on: o.Shared, now: o.Now, unsaved: map[*worker]struct{}{}, gone: map[ID]bool{}}
}

// Validate returns what is wrong with what Changes has not told yet, for tests.
func (d *Directory) Validate() error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	touched := 0
	known := map[*worker]bool{}
	for _, i := range d.instances {
		for _, w := range i.workers {
			known[w] = true
			_, listed := d.unsaved[w]
			for _, l := range w.locations {
				if touched += len(l.touched); len(l.touched) > 0 && w.elsewhere {
					return fmt.Errorf("keys of %v are touched, and it is elsewhere", w.ID)
				}
			}
			if !listed && (w.changed && !w.scanning || w.reset || w.whole) || listed && w.elsewhere {
				return fmt.Errorf("%v is listed: %v", w.ID, listed)
			}
		}
	}
	for w := range maps.Keys(d.unsaved) {
		if !known[w] {
			return fmt.Errorf("%v is not known", w.ID)
		}
	}
	if touched != d.touched {
		return fmt.Errorf("%d keys are touched, not %d", d.touched, touched)
	}
	return nil
}
