package shmstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ringcache/ringcache/internal/closing"
	"github.com/ringcache/ringcache/shmring/segment"
)

// Holder is something open that blocks Close.
type Holder struct {
	// Kind is "request", "reservation", or "view" for whatever else keeps the segment
	// mapped: a view of the writer, a request that [Store.ResetReaders] ended and whose owner
	// has not ended it, or a call that is running.
	Kind  string
	ID    string    // of a request
	Sent  bool      // the request was committed
	Since time.Time // Begin of a request
	Keys  []string  // of the objects that it keeps, sorted; nil of a view
	Count int       // of views
}

// String is a phrase for the list of a BusyError.
func (h Holder) String() string {
	switch h.Kind {
	case "request":
		state := "not sent"
		if h.Sent {
			state = "sent"
		}
		return fmt.Sprintf("request %q (%s, begun %v ago, %d keys)", h.ID, state, time.Since(h.Since).Round(time.Millisecond), len(h.Keys))
	case "reservation":
		return fmt.Sprintf("a reservation of key %q", h.Keys[0])
	}
	return fmt.Sprintf("%d views", h.Count)
}

// BusyError reports what blocks a Close, or what a Shutdown waited for.
type BusyError struct {
	Segment string
	Holders []Holder
	Err     error // of Shutdown's context; nil from Close and Detach
}

// mostNamed is how many open things an error names.
const mostNamed = 8

// Error names the segment and its first holders.
func (e *BusyError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "shmstore: segment %s is in use: ", e.Segment)
	for i, h := range e.Holders {
		if i == mostNamed {
			fmt.Fprintf(&b, ", and %d more", len(e.Holders)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(h.String())
	}
	b.WriteString("; end requests, release views, commit or discard reservations, or Abandon the store")
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	return b.String()
}

// Unwrap makes errors.Is true of [segment.ErrBusy] and of the context's error.
func (e *BusyError) Unwrap() []error {
	if e.Err == nil {
		return []error{segment.ErrBusy}
	}
	return []error{segment.ErrBusy, e.Err}
}

// Holders lists what is open: requests by id, of which those with no key do not block
// Close, then reservations by key, then views.
func (s *Store) Holders() []Holder {
	if s.lock() != nil {
		return nil
	}
	defer s.mu.Unlock()
	return s.holders()
}

func (s *Store) holders() (all []Holder) {
	mapped := 0 // by the requests that are named
	for _, id := range slices.Sorted(maps.Keys(s.lifetime.requests)) {
		r := s.lifetime.requests[id]
		if r.mapped {
			mapped++
		}
		h := Holder{Kind: "request", ID: id, Sent: r.state == requestCommitted, Since: r.since}
		for l := range r.leases.All() {
			h.Keys = append(h.Keys, l.Object.Key())
		}
		slices.Sort(h.Keys)
		all = append(all, h)
	}
	for _, key := range s.lifetime.pending.keys() {
		all = append(all, Holder{Kind: "reservation", Keys: []string{key}, Count: 1})
	}
	if views := s.seg.Holds() - s.lifetime.pending.len() - mapped; views > 0 {
		all = append(all, Holder{Kind: "view", Count: views})
	}
	return all
}

// closer is what package closing has to know of the store.
func (s *Store) closer() closing.Store {
	return closing.Store{
		Lock: &s.mu, Segment: s.seg, Owns: s.owns, ErrClosed: errClosed, ErrBusy: segment.ErrBusy,
		Leased: func() bool { return s.lifetime.leases > 0 },
		Open: func() bool {
			return len(s.lifetime.requests) > 0 || s.lifetime.leases > 0 || s.lifetime.pending.len() > 0
		},
		Busy: func(cause error) error {
			return &BusyError{Segment: s.seg.Name(), Holders: s.holders(), Err: cause}
		},
		End: func() {
			for _, r := range s.lifetime.requests {
				r.state = requestEnded
			}
			clear(s.lifetime.requests)
		},
		WakeAll: s.space.waiters.WakeAll,
	}
}

// Close unmaps the segment and, if Create or Adopt made the store, removes it. It fails
// with [segment.ErrBusy], and does nothing, while a reservation, a lease or a view is open: see
// [BusyError], [Store.Shutdown] and [Store.Abandon]. Closing twice is fine.
func (s *Store) Close() error { return s.state.Close(s.closer()) }

// Detach is Close, but leaves the segment as it is, so that another store can adopt it:
// readers go on meanwhile.
func (s *Store) Detach() error { return s.state.Detach(s.closer()) }

// Yield closes the store, whatever is open, and leaves the segment to the next writer, who may adopt it at
// once: what requests have is in quarantine then, as after a kill. Every later call fails with
// fs.ErrClosed, or does nothing. Memory that a reservation, a view or [Request.Bytes] still gives access
// to stays mapped until that ends as usual.
func (s *Store) Yield() error { return s.state.Yield(s.closer(), s.seg.Yield) }

// Shutdown is Close that waits. From now on there is no new request: Begin fails with
// fs.ErrClosed. Open requests go on, but those who wait for room are woken with that error
// if their request has ended. Shutdown waits until all that is open has ended, and closes
// the store. When ctx ends first the error is a [BusyError], which wraps ctx's; the store
// stays usable for what is open, and Shutdown can be called again.
func (s *Store) Shutdown(ctx context.Context) error { return s.state.Shutdown(ctx, s.closer()) }

// wakeShutdown wakes Shutdown when the last thing that it waits for has ended.
func (s *Store) wakeShutdown() {
	if s.state.Draining() {
		s.state.Wake(s.closer())
	}
}

func (s *Store) errStopping() error {
	return fmt.Errorf("%w: %s is shutting down and takes nothing new", errClosed, s.seg.Name())
}

// Abandon closes the store by force, whatever is open, for use with defer. If
// Create or Adopt made it, the segment's names are removed at once. Every later call
// fails with fs.ErrClosed, or does nothing. Memory that a reservation, a view or
// [Request.Bytes] still gives access to stays mapped until that ends as usual. It does
// nothing to a store that is closed.
func (s *Store) Abandon() error { return s.state.Abandon(s.closer()) }
