package objstore

import (
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/internal/invariants"
	"github.com/ringcache/ringcache/internal/line"
)

// CheckStructure implements [Store].
func (f *FIFO) CheckStructure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state.Closed {
		return nil
	}
	return errors.Join(f.guard(f.ring.CheckStructure), f.checkTables())
}

// unlock gives the lock back. Builds that check invariants look first whether everything
// holds that must hold between calls; with many objects now and then only, since a check
// goes through all of them.
func (f *FIFO) unlock() {
	defer f.mu.Unlock()
	if invariants.Enabled && !f.state.Closed && (len(f.objects) <= 64 || invariants.Sometimes(1)) {
		invariants.Must(f.checkTables())
	}
}

// checkTables verifies what is in memory of the process alone.
func (f *FIFO) checkTables() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("store: "+format, args...)) }
	f.checkObjects(bad)
	f.checkLeases(bad)
	f.waiters.Check([]*line.Line{&f.waiters.Main}, bad)
	return errors.Join(errs...)
}

func (f *FIFO) checkObjects(bad func(format string, args ...any)) {
	states := map[fifoState]int{}
	size := uint64(0)
	for id, address := range f.ring.Live() {
		o, ok := f.objects[id]
		if !ok {
			bad("chunk %d has no object", id)
			continue
		}
		states[o.state]++
		size += uint64(o.size)
		if o.id != id || o.address != address {
			bad("object %d:%d is filed as %d:%d", o.address, o.id, address, id)
		}
		switch {
		case o.state == fifoReserved && f.pending[o.key] != o:
			bad("reserved key %q is not pending", o.key)
		case o.state == fifoCommitted && f.index[o.key] != o:
			bad("key %q is not indexed", o.key)
		}
		if err := o.counts.check(); err != nil {
			bad("key %q: %w", o.key, err)
		}
		if _, ok := f.touched[o]; ok != o.touched || o.touched && o.state != fifoCommitted {
			bad("key %q in state %d is touched: %v, %v", o.key, o.state, o.touched, ok)
		}
	}
	if len(f.objects) != f.ring.Len() {
		bad("%d objects for %d chunks", len(f.objects), f.ring.Len())
	}
	if used := f.ring.Used(); size > used || used > uint64(f.ring.Size()) || size == 0 && used != 0 {
		bad("chunks of %d bytes, %d in use of %d", size, used, f.ring.Size())
	}
	if len(f.index) != states[fifoCommitted] || len(f.pending) != states[fifoReserved] {
		bad("%d keys and %d pending for %d committed and %d reserved objects", len(f.index), len(f.pending),
			states[fifoCommitted], states[fifoReserved])
	}
	for key := range f.pending {
		if o, ok := f.index[key]; ok && f.canUse(o.counts, 1) {
			bad("key %q is indexed and pending", key)
		}
	}
	for o := range f.touched {
		if f.objects[o.id] != o {
			bad("key %q is touched, and gone", o.key)
		}
	}
}

func (f *FIFO) checkLeases(bad func(format string, args ...any)) {
	leases, sent, all := map[*fifoObject]int{}, map[*fifoObject]int{}, 0
	for id, r := range f.requests {
		if r.id != id || r.state == requestEnded {
			bad("request %q in state %d is filed as %q", r.id, r.state, id)
		}
		for l := range r.leases.All() {
			o := l.Object
			leases[o]++
			all++
			if r.state == requestCommitted {
				sent[o]++
			}
		}
	}
	for _, o := range f.objects {
		if o.leases != leases[o] || o.sent != sent[o] {
			bad("key %q has %d leases, %d sent; requests have %d and %d", o.key, o.leases, o.sent, leases[o], sent[o])
		}
	}
	if all != f.leases {
		bad("%d leases of requests, %d in all", all, f.leases)
	}
}
