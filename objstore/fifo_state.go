package objstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ringcache/ringcache/internal/closing"
	"github.com/ringcache/ringcache/internal/line"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmstore"
)

// State implements [Store].
func (f *FIFO) State() (State, error) {
	if err := f.lock(); err != nil {
		return State{}, err
	}
	defer f.mu.Unlock()
	s := State{Ring: f.ring.State(), Used: f.ring.Used(), Leases: f.leases, Readers: f.readers}
	for id := range f.ring.Live() {
		o := f.objects[id]
		if o.state == fifoReserved || o.state == fifoDiscarded {
			continue
		}
		s.Objects = append(s.Objects, ObjectState{
			ObjectState: shmstore.ObjectState{
				Key: o.key, Address: o.address, ID: id, Bytes: int64(o.size), Indexed: o.state == fifoCommitted, Pinned: o.touched, Leases: o.leases,
			},
			Uses: o.uses,
		})
	}
	// In one guard, since one for each takes longer than all the rest. Where the
	// memory is gone nothing more was read.
	_ = f.guard(func() error {
		for i := range s.Objects {
			o := &s.Objects[i]
			if c, err := shmring.ReadChunk(f.chunks.seg.Ring(), o.Address); err == nil && len(c.Payload) >= countSize {
				o.Reads = readCount(c.Payload)
			}
		}
		return nil
	})
	return s, nil
}

// Stats implements [Store].
func (f *FIFO) Stats() (Stats, error) {
	if err := f.lock(); err != nil {
		return Stats{}, err
	}
	defer f.mu.Unlock()
	return Stats{
		Objects: len(f.index), Chunks: f.ring.Len(), Used: int64(f.ring.Used()), Leases: f.leases, Requests: len(f.requests),
		Waiting: f.waiters.Len(), Misused: f.misused, Readers: f.readers,
		Woken: f.waiters.Woken, Polls: f.waiters.Polls,
	}, nil
}

// CheckStructure implements [Store].
func (f *FIFO) CheckStructure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state.Closed {
		return nil
	}
	errs := []error{f.guard(f.ring.CheckStructure)}
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("store: "+format, args...)) }
	f.checkObjects(bad)
	f.checkLeases(bad)
	f.waiters.Check([]*line.Line{&f.waiters.Main}, bad)
	return errors.Join(errs...)
}

func (f *FIFO) checkObjects(bad func(format string, args ...any)) {
	states := map[fifoState]int{}
	for id, address := range f.ring.Live() {
		o, ok := f.objects[id]
		if !ok {
			bad("chunk %d has no object", id)
			continue
		}
		states[o.state]++
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
	if len(f.index) != states[fifoCommitted] || len(f.pending) != states[fifoReserved] {
		bad("%d keys and %d pending for %d committed and %d reserved objects", len(f.index), len(f.pending), states[fifoCommitted], states[fifoReserved])
	}
	for key := range f.pending {
		if o, ok := f.index[key]; ok && f.canTake(o.counts, 1) {
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
		for o := range r.leases {
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

// Holders implements [Store].
func (f *FIFO) Holders() []shmstore.Holder {
	if f.lock() != nil {
		return nil
	}
	defer f.mu.Unlock()
	return f.holders()
}

func (f *FIFO) holders() (all []shmstore.Holder) {
	for _, id := range slices.Sorted(maps.Keys(f.requests)) {
		r := f.requests[id]
		h := shmstore.Holder{Kind: "request", ID: id, Sent: r.state == requestCommitted, Since: r.since}
		for o := range r.leases {
			h.Keys = append(h.Keys, o.key)
		}
		slices.Sort(h.Keys)
		all = append(all, h)
	}
	for _, key := range slices.Sorted(maps.Keys(f.pending)) {
		all = append(all, shmstore.Holder{Kind: "reservation", Keys: []string{key}, Count: 1})
	}
	if views := f.chunks.seg.Holds() - len(f.pending) - f.kept; views > 0 {
		all = append(all, shmstore.Holder{Kind: "view", Count: views})
	}
	return all
}

// closer is what package closing has to know of the store.
func (f *FIFO) closer() closing.Store {
	return closing.Store{
		Lock: &f.mu, Segment: f.chunks.seg, Owns: f.owns, ErrClosed: ErrClosed, ErrBusy: ErrBusy,
		Leased: func() bool { return f.leases > 0 },
		Open:   func() bool { return len(f.requests) > 0 || f.leases > 0 || len(f.pending) > 0 },
		Busy: func(cause error) error {
			return &shmstore.BusyError{Segment: f.Name(), Holders: f.holders(), Err: cause}
		},
		End: func() {
			for _, r := range f.requests {
				r.state = requestEnded
			}
			clear(f.requests)
		},
		WakeAll: f.waiters.WakeAll,
	}
}

// Close implements [Store].
func (f *FIFO) Close() error { return f.state.Close(f.closer()) }

// Detach implements [Store].
func (f *FIFO) Detach() error { return f.state.Detach(f.closer()) }

// Shutdown implements [Store].
func (f *FIFO) Shutdown(ctx context.Context) error { return f.state.Shutdown(ctx, f.closer()) }

// Abandon implements [Store].
func (f *FIFO) Abandon() error { return f.state.Abandon(f.closer()) }

// wakeShutdown wakes Shutdown when the last thing that it waits for has ended.
func (f *FIFO) wakeShutdown() {
	if f.state.Draining() {
		f.state.Wake(f.closer())
	}
}
