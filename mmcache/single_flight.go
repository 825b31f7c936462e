package mmcache

import "sync"

// flights are the items that are being made: one producer per key, everyone else
// waits for it.
type flights struct {
	mu  sync.Mutex
	all map[string]*flight
}

type flight struct {
	tenant string // the leader's
	done   chan struct{}
	e      *entry // the leader's; e and err are set when done is closed
	err    error
}

// join returns the flight of a key. lead says that the caller has to make the
// item, and to land.
func (f *flights) join(key, tenant string) (fl *flight, lead bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl, ok := f.all[key]; ok {
		return fl, false
	}
	if f.all == nil {
		f.all = map[string]*flight{}
	}
	fl = &flight{tenant: tenant, done: make(chan struct{})}
	f.all[key] = fl
	return fl, true
}

func (f *flights) land(key string, fl *flight, e *entry, err error) {
	f.mu.Lock()
	delete(f.all, key)
	f.mu.Unlock()
	fl.e, fl.err = e, err
	close(fl.done)
}
