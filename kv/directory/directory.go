package directory

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"
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
}

// instance is an engine, with its workers by their numbers.
type instance struct {
	name    string
	workers []*worker
}

type worker struct {
	Worker

	instance  *instance
	locations []*location
	fresh     bool   // it has told everything since it began
	away      bool   // see Away
	wants     string // why a full synchronisation is wanted; empty if none is
	sync      *fullSync
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
	return &Directory{o: o, instances: map[string]*instance{}, table: table{seed: maphash.MakeSeed()}}
}

// ID is a worker of an instance.
type ID struct {
	Instance string
	Worker   int64 // its number; with tensor parallelism its rank
}

// Worker is what is known of a worker besides its chunks.
type Worker struct {
	ID
	IP   string
	Port int64
	// PeerURL is where other instances get chunks from it. Empty is nowhere.
	PeerURL string
	// Lasting is set for a worker that Expire never drops: who speaks for it knows when it ends.
	Lasting    bool
	Registered time.Time
	Heartbeat  time.Time // the last
}

// Register adds a worker that begins: it has no chunks, also where it was known before.
func (d *Directory) Register(w Worker) error { return d.register(w, true, "") }

// Heartbeat tells that a worker lives. A worker that is not known, since the directory is younger, is added. The reason
// is why a full synchronisation is wanted of it, or empty.
func (d *Directory) Heartbeat(w Worker) (reason string, err error) {
	d.mu.Lock()
	found := d.worker(w.ID)
	if found != nil {
		found.Heartbeat = d.o.Now()
		d.failed(found)
		reason = found.wants
		if found.sync != nil && !found.sync.complete {
			reason = "" // it is under way
		}
		d.mu.Unlock()
		return reason, nil
	}
	d.mu.Unlock()
	const unknown = "worker_re_registered" // LMCache's own word for it
	return unknown, d.register(w, false, unknown)
}

func (d *Directory) register(w Worker, fresh bool, wants string) error {
	if w.Instance == "" || len(w.Instance) > maxName || len(w.IP) > maxName || len(w.PeerURL) > maxName {
		return fmt.Errorf("%w: the instance has no name, or a text has more than %d bytes", errInvalid, maxName)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !fresh && d.worker(w.ID) != nil {
		return nil // it has registered since the heartbeat was looked at
	}
	d.drop(w.ID)
	if d.workers >= d.o.MaxWorkers {
		return fmt.Errorf("%w: %d workers are registered", ErrFull, d.workers)
	}
	w.Registered = d.o.Now()
	w.Heartbeat = w.Registered
	i := d.instances[w.Instance]
	if i == nil {
		i = &instance{name: w.Instance}
		d.instances[w.Instance] = i
	}
	at, _ := i.find(w.ID.Worker)
	i.workers = slices.Insert(i.workers, at, &worker{Worker: w, instance: i, fresh: fresh, wants: wants})
	d.workers++
	return nil
}

func (i *instance) find(number int64) (at int, found bool) {
	return slices.BinarySearchFunc(i.workers, number, func(w *worker, n int64) int { return cmp.Compare(w.ID.Worker, n) })
}

// worker returns a worker, or nil. The caller has the lock.
func (d *Directory) worker(id ID) *worker {
	if i := d.instances[id.Instance]; i != nil {
		if at, found := i.find(id.Worker); found {
			return i.workers[at]
		}
	}
	return nil
}

// Deregister drops a worker with all that it holds, and reports whether it was known.
func (d *Directory) Deregister(id ID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.drop(id)
}

func (d *Directory) drop(id ID) bool {
	w := d.worker(id)
	if w == nil {
		return false
	}
	d.setSync(w, nil)
	for _, l := range w.locations {
		d.end(l)
	}
	i := w.instance
	at, _ := i.find(id.Worker)
	if i.workers = slices.Delete(i.workers, at, at+1); len(i.workers) == 0 {
		delete(d.instances, i.name)
	}
	d.workers--
	return true
}

// end makes all chunks of a location those of nobody, at once: the table is swept later.
func (d *Directory) end(l *location) {
	d.locations[l.holder] = nil
	d.ended = append(d.ended, l.holder)
	d.counts.Entries -= l.chunks
}

// Expire drops the workers whose heartbeat is too old, and gives back the memory of those that have gone. Call it from
// time to time. It returns how many it dropped.
func (d *Directory) Expire() (dropped int) {
	d.mu.Lock()
	if now := d.o.Now(); d.o.Timeout > 0 {
		var late []ID
		for _, i := range d.instances {
			for _, w := range i.workers {
				if !w.Lasting && now.Sub(w.Heartbeat) > d.o.Timeout {
					late = append(late, w.ID)
				}
			}
		}
		for _, id := range late {
			d.drop(id)
		}
		dropped = len(late)
		d.counts.Expired += int64(dropped)
	}
	rest := len(d.ended) > 0 || len(d.sweeping) > 0
	d.mu.Unlock()
	for rest {
		d.mu.Lock()
		rest = d.sweep()
		d.mu.Unlock()
	}
	return dropped
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
	l := &location{name: name, worker: w, gap: !w.fresh} // what was reported before is not known
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
	if l.chunks > 0 {
		d.end(l)
		d.start(l)
	}
}

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
	for _, r := range reports {
		if r.Number >= 0 {
			d.number(l, r.Number)
		}
		syncing := w.sync != nil && !w.sync.complete && w.sync.location == name
		if r.Evicted {
			d.remove(l, r.Key)
			if syncing && !d.remember(w.sync, r.Key) {
				d.fail(w)
			}
			continue
		}
		if syncing {
			w.sync.admit(r.Key)
		}
		if err := d.add(l, r.Key); err != nil {
			return err
		}
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
	l.worker.wants = "reports_lost"
}

// Lost tells that reports of a worker were lost, for sources that notice it themselves: all its locations are stale, and
// those of which nothing has come yet.
func (d *Directory) Lost(id ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.worker(id)
	if w == nil {
		return
	}
	if w.fresh && len(w.locations) == 0 {
		d.counts.Gaps++
	}
	w.fresh = false
	for _, l := range w.locations {
		if !l.gap {
			d.counts.Gaps++
		}
		d.lost(l)
	}
}

// Away tells whether a worker has gone with what it holds, for sources that know of it, as of a disk that comes back with
// its host. Find does not name an instance of which a worker is away; reports about it are taken.
func (d *Directory) Away(id ID, away bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w := d.worker(id); w != nil {
		w.away = away
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
	d.counts.Admitted++
	return nil
}

func (d *Directory) remove(l *location, k Key) {
	if d.table.remove(k, l.holder) {
		l.chunks--
		d.counts.Entries--
	}
	d.counts.Evicted++
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

// Worker returns what is known of a worker.
func (d *Directory) Worker(id ID) (Worker, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if w := d.worker(id); w != nil {
		return w.Worker, true
	}
	return Worker{}, false
}

// Workers returns the workers of an instance, or of all if it is empty, by instance and number.
func (d *Directory) Workers(instance string) []Worker {
	d.mu.RLock()
	defer d.mu.RUnlock()
	var all []Worker
	for name, i := range d.instances {
		if instance == "" || name == instance {
			for _, w := range i.workers {
				all = append(all, w.Worker)
			}
		}
	}
	slices.SortFunc(all, func(a, b Worker) int {
		return cmp.Or(cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.ID.Worker, b.ID.Worker))
	})
	return all
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
