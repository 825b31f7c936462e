package directory

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

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

type worker struct {
	Worker

	instance  *instance
	locations []*location
	fresh     bool   // it has told everything since it began
	away      bool   // see Away
	wants     string // why a full synchronisation is wanted; empty if none is
	sync      *fullSync
	saving
}

// Register adds a worker that begins: it has no chunks, also where it was known before.
func (d *Directory) Register(w Worker) error { return d.register(w, true, "") }

// Heartbeat tells that a worker lives. A worker that is not known, since the directory is younger, is added. The reason
// is why a full synchronisation is wanted of it, or empty.
func (d *Directory) Heartbeat(w Worker) (reason string, err error) {
	d.mu.Lock()
	found := d.worker(w.ID)
	if found != nil {
		d.take(found)
		found.Heartbeat = d.o.Now()
		d.expireSync(found)
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
	d.drop(w.ID, false)
	if d.workers >= d.o.MaxWorkers {
		return fmt.Errorf("%w: %d workers are registered", ErrFull, d.workers)
	}
	w.Registered = d.o.Now()
	w.Heartbeat = w.Registered
	begun := d.insert(&worker{Worker: w, fresh: fresh, wants: wants})
	_, begun.told = d.gone[w.ID]
	delete(d.gone, w.ID)
	begun.reset = d.o.Shared
	d.change(begun)
	return nil
}

// insert adds a worker that is not there.
func (d *Directory) insert(w *worker) *worker {
	i := d.instances[w.Instance]
	if i == nil {
		i = &instance{name: w.Instance}
		d.instances[w.Instance] = i
	}
	at, _ := i.find(w.ID.Worker)
	w.instance = i
	i.workers = slices.Insert(i.workers, at, w)
	d.workers++
	return w
}

func (i *instance) find(number int64) (at int, found bool) {
	return slices.BinarySearchFunc(i.workers, number,
		func(w *worker, n int64) int { return cmp.Compare(w.ID.Worker, n) })
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
	return d.drop(id, false)
}

// drop drops a worker; late is why, for Changes.
func (d *Directory) drop(id ID, late bool) bool {
	w := d.worker(id)
	if w == nil {
		return false
	}
	d.setSync(w, nil)
	d.forget(w, late)
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

// Expire drops the workers whose heartbeat is too old, and gives back the memory of those that have gone. Call it from
// time to time. It returns how many it dropped.
func (d *Directory) Expire() (dropped int) {
	d.mu.Lock()
	if now := d.o.Now(); d.o.Timeout > 0 {
		var late []ID
		for _, i := range d.instances {
			for _, w := range i.workers {
				if !w.Lasting && !w.elsewhere && now.Sub(w.Heartbeat) > d.o.Timeout {
					late = append(late, w.ID)
				}
			}
		}
		for _, id := range late {
			d.drop(id, true)
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

// Away tells whether a worker has gone with what it holds, for sources that know of it, as of a disk that
// comes back with its host. Find does not name an instance of which a worker is away; reports about it are
// taken.
func (d *Directory) Away(id ID, away bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w := d.worker(id); w != nil && w.away != away {
		w.away = away
		d.change(w)
	}
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
