package objstore

import (
	"fmt"
	"time"

	"github.com/ringcache/ringcache/internal/leases"
	"github.com/ringcache/ringcache/internal/line"
)

// fifoRequest is a request of a FIFO.
type fifoRequest struct {
	f     *FIFO
	id    string
	since time.Time

	// Guarded by the store's lock.
	state   requestState
	leases  leases.Leases[fifoObject]
	pending int                       // reservations of it
	waiters map[*line.Waiter]struct{} // those that wait for room for it
	mapped  bool                      // the segment is mapped until it ends
	sent    bool                      // it was committed
}

type requestState uint8

const (
	requestOpen requestState = iota
	requestCommitted
	requestEnded
)

// Begin implements [Store].
func (f *FIFO) Begin(id string) (Request, error) {
	r, err := f.begin(id)
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (f *FIFO) begin(id string) (*fifoRequest, error) {
	r := &fifoRequest{f: f, state: requestEnded}
	if err := r.Begin(id); err != nil {
		return nil, err
	}
	return r, nil
}

// Begin implements [Request].
func (r *fifoRequest) Begin(id string) error {
	f := r.f
	if err := f.lock(); err != nil {
		return err
	}
	defer f.unlock()
	if f.state.Stopping {
		return fmt.Errorf("%w: %s is shutting down and takes nothing new", errClosed, f.Name())
	}
	if _, ok := f.requests[id]; ok {
		return fmt.Errorf("%w: request %q is open already", errInvalid, id)
	}
	if r.state != requestEnded || r.mapped || r.pending > 0 || len(r.waiters) > 0 {
		return fmt.Errorf("%w: request %q is in use; end it and its reservations before it begins again",
			errInvalid, r.id)
	}
	r.id, r.since, r.state, r.sent = id, time.Now(), requestOpen, false
	f.requests[id] = r
	return nil
}

func (r *fifoRequest) ID() string { return r.id }

func (r *fifoRequest) Ended() bool {
	r.f.mu.Lock()
	defer r.f.unlock()
	return r.state == requestEnded
}

// enter takes the store's lock for a request that was not committed.
func (r *fifoRequest) enter() error {
	if err := r.f.lock(); err != nil {
		return err
	}
	if r.state != requestOpen {
		err := r.notOpen()
		r.f.unlock()
		return err
	}
	return nil
}

// notOpen returns why the request takes nothing more.
func (r *fifoRequest) notOpen() error {
	if r.state == requestCommitted {
		return fmt.Errorf("%w: %s was committed, so its handles may be with the engine; begin another request",
			ErrEnded, r.id)
	}
	return fmt.Errorf("%w: %s was finished, aborted or rolled back, or its readers were reset", ErrEnded, r.id)
}

// become enters the next state, in which nobody waits for room.
func (r *fifoRequest) become(state requestState) {
	r.state = state
	for w := range r.waiters {
		r.f.waiters.Wake(w)
	}
	if state == requestEnded {
		delete(r.f.requests, r.id)
	}
}

func (r *fifoRequest) Commit() error {
	if err := r.enter(); err != nil {
		return err
	}
	defer r.f.unlock()
	r.become(requestCommitted)
	r.sent = true
	for l := range r.leases.All() {
		l.Object.sent++
		l.Object.counts.sent(l.Uses)
	}
	return nil
}

func (r *fifoRequest) Rollback() { r.end(requestOpen) }
func (r *fifoRequest) Finish()   { r.end(requestCommitted) }

// Abort: the counts show whatever is still to be read.
func (r *fifoRequest) Abort() { r.end(requestCommitted) }

func (r *fifoRequest) end(from requestState) {
	f := r.f
	f.mu.Lock()
	defer f.unlock()
	if r.state == requestOpen && from == requestCommitted && !f.state.Closed {
		f.misused++
	}
	if r.state == from && !f.state.Closed {
		r.become(requestEnded)
		for l := range r.leases.All() {
			r.endLease(*l, from == requestCommitted)
		}
		r.leases.Clear()
		f.wakeFirst()
	}
	// A Rollback that comes after Commit is deferred, and does not end it.
	if r.mapped && r.state == requestEnded && (from == requestCommitted || !r.sent) {
		r.mapped = false
		f.mapped--
		f.chunks.seg.Release()
	}
	f.wakeShutdown()
}
