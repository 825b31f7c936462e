package directory

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"sync"
	"time"
)

// Options of a Directory. The zero value has bounds that a fleet of 1,000 instances does not reach.
type Options struct {
	MaxWorkers int // 0 is 16,384
	MaxEntries int // of a chunk and a location of a worker; 0 is 1 << 26
	// Timeout is how long after its last heartbeat a worker is dropped by Expire. 0 is never.
	Timeout time.Duration
	// SyncTimeout is how long after its last message a full synchronisation has failed. 0 is 5 minutes.
	SyncTimeout time.Duration
	// Release is which part of all workers has to have its chunks known before one that waits may go on, 0 to 1. 0 is
	// 0.8, as LMCache's controller has it.
	Release float64
	// Shared is set if Changes are told to directories elsewhere.
	Shared bool
	// Now is the clock. nil is time.Now.
	Now func() time.Time
}

// Bounds of what one worker may take.
const (
	maxName       = 256 // bytes of an instance, a location, an address
	maxLocations  = 16  // of a worker
	maxBatches    = 1 << 16
	maxMissing    = 4096    // batches that one answer names
	maxEvicted    = 1 << 16 // chunks that left during one full synchronisation
	maxAllEvicted = 1 << 20 // the same of all that are under way
	maxChain      = 1 << 17 // chunks of a look-up
	piece         = 256     // reports that are applied before others have a turn
)

// Directory knows which chunks are at which location of which worker.
type Directory struct {
	o Options

	mu        sync.RWMutex // guards what follows
	instances map[string]*instance
	workers   int
	locations []*location // by holder; nil is free, or has ended
	free      []uint32    // holders
	ended     []uint32    // holders that the table may have still
	sweeping  []uint32    // holders that the table has only in the parts from next on
	next      int
	table     table
	counts    Counts
	evicted   int // chunks that full synchronisations remember
	sharing
}

// instance is an engine, with its workers by their numbers.
type instance struct {
	name    string
	workers []*worker
}

// location is a place of a worker for chunks.
type location struct {
	name     string
	worker   *worker
	holder   uint32
	last     int64 // number of the last report
	numbered bool  // there was one
	gap      bool  // reports were lost, and no full synchronisation of the location has come since
	chunks   int

	partial bool // there was no room for all that another directory has told
	cleared bool // it was emptied, which is not told yet, before touched
	touched []Key
}

// New returns an empty directory.
func New(o Options) *Directory {
	o.MaxWorkers = cmp.Or(o.MaxWorkers, 16<<10)
	o.MaxEntries = cmp.Or(o.MaxEntries, 1<<26)
	o.SyncTimeout = cmp.Or(o.SyncTimeout, 5*time.Minute)
	o.Release = cmp.Or(o.Release, 0.8)
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Directory{o: o, instances: map[string]*instance{}, table: table{seed: maphash.MakeSeed()},
		sharing: newSharing(o)}
}

// end makes all chunks of a location those of nobody, at once: the table is swept later.
func (d *Directory) end(l *location) {
	d.locations[l.holder] = nil
	d.ended = append(d.ended, l.holder)
	d.counts.Entries -= l.chunks
}

// sweep sweeps one part of the table, and reports whether there is more to sweep.
func (d *Directory) sweep() bool {
	if len(d.sweeping) == 0 {
		if len(d.ended) == 0 {
			return false
		}
		d.sweeping, d.ended, d.next = d.ended, nil, 0
	}
	d.table.sweep(d.next, func(holder uint32) bool { return d.locations[holder] == nil })
	if d.next++; d.next == parts {
		d.free = append(d.free, d.sweeping...)
		d.sweeping = nil
	}
	return true
}

// location returns a location of a worker, and makes it if add is set. The caller has the lock.
func (d *Directory) location(w *worker, name string, add bool) (*location, error) {
	for _, l := range w.locations {
		if l.name == name {
			return l, nil
		}
	}
	switch {
	case !add:
		return nil, nil
	case len(w.locations) >= maxLocations:
		return nil, fmt.Errorf("%w: a worker has %d locations", ErrFull, len(w.locations))
	case len(name) > maxName:
		return nil, fmt.Errorf("%w: the location has more than %d bytes", errInvalid, maxName)
	}
	l := &location{name: name, worker: w}
	if !w.fresh { // what was reported before is not known
		l.gap, w.wants = true, cmp.Or(w.wants, reportsLost)
	}
	d.start(l)
	w.locations = append(w.locations, l)
	return l, nil
}

// start gives a location a holder of its own, under which there is nothing.
func (d *Directory) start(l *location) {
	// Of each holder in use there may be one that waits for the sweep. More are from workers that come and go
	// faster than anybody calls Expire.
	if most := 2*maxLocations*d.o.MaxWorkers + 64; len(d.free) == 0 && len(d.locations) >= most {
		for len(d.free) == 0 && d.sweep() {
			continue
		}
	}
	if n := len(d.free); n > 0 {
		l.holder = d.free[n-1]
		d.free = d.free[:n-1]
		d.locations[l.holder] = l
	} else {
		l.holder = uint32(len(d.locations))
		d.locations = append(d.locations, l)
	}
	l.chunks = 0
}

// clear empties a location.
func (d *Directory) clear(l *location) {
	l.partial = false
	if l.chunks > 0 {
		d.end(l)
		d.start(l)
		d.untouch(l)
		l.cleared = d.o.Shared
	}
}

// Counts are what a directory has, and what came so far.
type Counts struct {
	Instances, Workers int
	Chunks             int // that somebody holds, or has held until lately
	Entries            int // of a chunk and a location of a worker
	Admitted, Evicted  int64
	Gaps               int64 // reports that were lost, once for each place where some were
	Refused            int64 // admitted chunks for which there was no room
	Expired            int64 // workers without a heartbeat
	Synced             int64 // full synchronisations
}

// Counts returns them.
func (d *Directory) Counts() Counts {
	d.mu.RLock()
	defer d.mu.RUnlock()
	c := d.counts
	c.Instances, c.Workers, c.Chunks = len(d.instances), d.workers, d.table.len()
	return c
}

// Room returns for how many entries there is room, at most one more: who reads what is to be followed
// stops there, and Follow refuses the last one.
func (d *Directory) Room() int {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return max(0, d.o.MaxEntries-d.table.pairs) + 1
}
