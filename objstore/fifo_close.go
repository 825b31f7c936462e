package objstore

import (
	"context"
	"maps"
	"slices"

	"github.com/ringcache/ringcache/internal/closing"
	"github.com/ringcache/ringcache/shmstore"
)

// Holders implements [Store].
func (f *FIFO) Holders() []shmstore.Holder {
	if f.lock() != nil {
		return nil
	}
	defer f.unlock()
	return f.holders()
}

func (f *FIFO) holders() (all []shmstore.Holder) {
	kept := 0 // by the requests that are named
	for _, id := range slices.Sorted(maps.Keys(f.requests)) {
		r := f.requests[id]
		if r.mapped {
			kept++
		}
		h := shmstore.Holder{Kind: "request", ID: id, Sent: r.state == requestCommitted, Since: r.since}
		for l := range r.leases.All() {
			h.Keys = append(h.Keys, l.Object.key)
		}
		slices.Sort(h.Keys)
		all = append(all, h)
	}
	for _, key := range slices.Sorted(maps.Keys(f.pending)) {
		all = append(all, shmstore.Holder{Kind: "reservation", Keys: []string{key}, Count: 1})
	}
	if views := f.chunks.seg.Holds() - len(f.pending) - kept; views > 0 {
		all = append(all, shmstore.Holder{Kind: "view", Count: views})
	}
	return all
}

// closer describes the store to package closing.
func (f *FIFO) closer() closing.Store {
	return closing.Store{
		Lock: &f.mu, Segment: f.chunks.seg, Owns: f.owns, ErrClosed: errClosed, ErrBusy: ErrBusy,
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
