package objstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// HolderKind is the kind of a [Holder].
type HolderKind uint8

const (
	// HolderRequest is a [Request] with its leases.
	HolderRequest HolderKind = iota + 1
	// HolderReservation is a [Reservation].
	HolderReservation
	// HolderLease is a [Lease], or with Pool a [View] of the writer, that belongs to
	// no request.
	HolderLease
	// HolderView is whatever else keeps the segment mapped: a [View] of the writer, or
	// a call that is running.
	HolderView
)

func (k HolderKind) String() string {
	return [...]string{"HolderKind(0)", "request", "reservation", "lease", "view"}[min(int(k), 4)]
}

// Holder is something open that blocks Close.
type Holder struct {
	Kind  HolderKind
	ID    string    // of an HolderRequest
	Sent  bool      // the HolderRequest was sent
	Since time.Time // Begin of an HolderRequest
	Keys  []string  // of the objects that it keeps, sorted; nil if an HolderView
	Count int       // leases of the key, or views
}

func (o Holder) String() string {
	switch o.Kind {
	case HolderRequest:
		state := "not sent"
		if o.Sent {
			state = "sent"
		}
		return fmt.Sprintf("request %q (%s, begun %v ago, %d keys)", o.ID, state, time.Since(o.Since).Round(time.Millisecond), len(o.Keys))
	case HolderReservation:
		return fmt.Sprintf("a reservation of key %q", o.Keys[0])
	case HolderLease:
		return fmt.Sprintf("%d leases of key %q", o.Count, o.Keys[0])
	}
	return fmt.Sprintf("%d views", o.Count)
}

// BusyError says what blocks a Close, or what a Shutdown waited for.
type BusyError struct {
	Segment string
	Holders []Holder
	Err     error // of Shutdown's context; nil from Close and Detach
}

// mostNamed is how many open things an error names.
const mostNamed = 8

func (e *BusyError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "objstore: segment %s is in use: ", e.Segment)
	for i, o := range e.Holders {
		if i == mostNamed {
			fmt.Fprintf(&b, ", and %d more", len(e.Holders)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(o.String())
	}
	b.WriteString("; end requests, release leases and views, commit or discard reservations, or Abandon the store")
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	return b.String()
}

// Unwrap makes errors.Is true of [ErrBusy] and of the context's error.
func (e *BusyError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrBusy}
	}
	return []error{ErrBusy, e.Err}
}

// Holders lists what is open: requests by id, of which those with no key do not block
// Close, then reservations and leases by
// key, then views.
func (w *Writer) Holders() []Holder {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.holders()
}

func (w *Writer) holders() (all []Holder) {
	if w.closed {
		return nil
	}
	leased := map[*object]int{} // by requests
	for _, id := range slices.Sorted(maps.Keys(w.requests)) {
		r := w.requests[id]
		o := Holder{Kind: HolderRequest, ID: id, Sent: r.state == requestSent, Since: r.since}
		for object := range r.leases {
			leased[object]++
			o.Keys = append(o.Keys, object.key)
		}
		slices.Sort(o.Keys)
		all = append(all, o)
	}
	for _, key := range slices.Sorted(maps.Keys(w.pending)) {
		all = append(all, Holder{Kind: HolderReservation, Keys: []string{key}, Count: 1})
	}
	views := w.sv.seg.Holds() - len(w.pending)
	if w.leases > 0 {
		var leases []Holder
		for _, o := range w.objects {
			if n := o.leases - leased[o]; n > 0 {
				leases = append(leases, Holder{Kind: HolderLease, Keys: []string{o.key}, Count: n})
			}
		}
		slices.SortFunc(leases, func(a, b Holder) int { return cmp.Compare(a.Keys[0], b.Keys[0]) })
		all = append(all, leases...)
	}
	if views > 0 && (w.opt.Policy != Pool || w.leases == 0) {
		all = append(all, Holder{Kind: HolderView, Count: views})
	}
	return all
}

func (w *Writer) busy(cause error) error {
	return &BusyError{Segment: w.Name(), Holders: w.holders(), Err: cause}
}

// Shutdown is Close that waits. From now on there is no new request, and no new
// lease, handle or reservation outside of one: these fail with [ErrClosed], and
// who waits in PutContext and the like is woken with it. Open requests go on.
// Shutdown waits until all that is open has ended, and closes the store. When ctx
// ends first the error is a [BusyError], which wraps ctx's; the store stays usable
// for what is open, and Shutdown can be called again.
func (w *Writer) Shutdown(ctx context.Context) error {
	for first := true; ; first = false {
		w.mu.Lock()
		if w.closed {
			w.mu.Unlock()
			if first || w.shut {
				return nil
			}
			return fmt.Errorf("%w: %s: the store was closed or abandoned while Shutdown waited", ErrClosed, w.Name())
		}
		w.stopping = true
		w.wakeAll()
		if w.drained == nil {
			w.drained = make(chan struct{})
		}
		ended := w.drained // also by Abandon
		var free <-chan struct{}
		if w.idle() {
			err := w.finish(w.ending())
			if !errors.Is(err, ErrBusy) {
				w.shut = true
				w.mu.Unlock()
				return err
			}
			free = w.sv.seg.Idle() // a view
		}
		w.mu.Unlock()
		select {
		case <-ended:
		case <-free:
		case <-ctx.Done():
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.busy(ctx.Err())
		}
	}
}

// idle reports whether no request, lease or reservation is open.
func (w *Writer) idle() bool {
	return len(w.requests) == 0 && w.leases == 0 && len(w.pending) == 0
}

// wakeShutdown wakes Shutdown when the last thing that it waits for has ended.
func (w *Writer) wakeShutdown() {
	if w.drained != nil && (w.closed || w.idle()) {
		close(w.drained)
		w.drained = nil
	}
}

// lockNew is lock for what begins, and is refused once Shutdown was called.
func (w *Writer) lockNew() error {
	if err := w.lock(); err != nil {
		return err
	}
	if w.stopping {
		w.mu.Unlock()
		return w.errStopping()
	}
	return nil
}

func (w *Writer) errStopping() error {
	return fmt.Errorf("%w: %s is shutting down and takes nothing new", ErrClosed, w.sv.seg.Name())
}

// Abandon closes the store by force, whatever is open, for use with defer. If
// Create or Adopt made the writer it removes the segment's names at once. Every
// later call fails with [ErrClosed], or does nothing. Memory that a reservation, a
// view or the value of [Lease.Stored] still gives access to stays mapped until
// that ends as usual. It does nothing to a store that is closed.
func (w *Writer) Abandon() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.markClosed()
	if w.own {
		return w.sv.seg.Abandon()
	}
	return w.sv.seg.Leave()
}

// hold keeps the segment mapped until the lease is ended by its owner.
func (l *Lease) hold() {
	if !l.holds && !l.ended && l.w.sv.seg.Hold() == nil {
		l.holds = true
	}
}

func (l *Lease) letGo() {
	if l.holds {
		l.holds = false
		l.w.sv.seg.Release()
	}
}
