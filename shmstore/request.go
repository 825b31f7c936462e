package objstore

import (
	"context"
	"fmt"
	"time"

	"github.com/ringcache/ringcache/serde"
)

// Request ties leases to a request to the engine: what it looks up or puts stays
// in the store until it ends. One that fans out (n > 1) looks each object up once
// per child, so that every child has a handle of its own that counts.
//
//	r, err := w.Begin("request-1")
//	defer r.Rollback() // does nothing after Commit
//	h, err := r.Lookup(key) // or r.Put, r.Reserve
//	send(h)
//	r.Commit()
//	// later: r.Finish(), or r.Abort()
//
// Its methods may be called by any goroutine.
type Request struct {
	w     *Writer
	id    string
	since time.Time

	// Guarded by the writer's lock.
	state  requestState
	leases map[*object]*Lease
	// waiters wait for room for it.
	waiters map[*waiter]struct{}
}

type requestState uint8

const (
	requestOpen requestState = iota
	requestSent
	requestEnded
)

// Begin starts a request. No other with its id may be open.
func (w *Writer) Begin(id string) (*Request, error) {
	if err := w.lockNew(); err != nil {
		return nil, err
	}
	defer w.mu.Unlock()
	if _, ok := w.requests[id]; ok {
		return nil, fmt.Errorf("%w: request %q is open already", ErrInvalid, id)
	}
	r := &Request{w: w, id: id, since: time.Now(), leases: map[*object]*Lease{}}
	w.requests[id] = r
	return r, nil
}

// ID returns the request's id.
func (r *Request) ID() string { return r.id }

// Ended reports whether the request has ended.
func (r *Request) Ended() bool {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	return r.state == requestEnded
}

// enter takes the writer's lock for a request that was not sent.
func (r *Request) enter() error {
	if err := r.w.lock(); err != nil {
		return err
	}
	if r.state != requestOpen {
		err := r.over()
		r.w.mu.Unlock()
		return err
	}
	return nil
}

// over says why the request takes nothing more.
func (r *Request) over() error {
	if r.state == requestSent {
		return fmt.Errorf("%w: %s was committed, so its handles may be with the engine; begin another request", ErrEnded, r.id)
	}
	return fmt.Errorf("%w: %s was finished, aborted or rolled back, or its readers were reset", ErrEnded, r.id)
}

// setState enters the next state, in which nobody waits for room.
func (r *Request) setState(s requestState) {
	r.state = s
	for wt := range r.waiters {
		r.w.rouse(wt)
	}
}

// Lookup returns a handle of the object under a key, leased to the request and
// counted. It fails with [KeyNotFoundError]; with [ErrFull] after so many uses
// that the readers' count would overflow; and with [ErrEnded].
func (r *Request) Lookup(key string) (Handle, error) {
	if err := r.enter(); err != nil {
		return Handle{}, err
	}
	defer r.w.mu.Unlock()
	if key == "" {
		return Handle{}, errNoKey()
	}
	o, err := r.w.find(key)
	if err != nil {
		return Handle{}, err
	}
	return r.issue(o)
}

// issue counts a handle of o for the request.
func (r *Request) issue(o *object) (Handle, error) {
	l := r.leases[o]
	if l == nil {
		var err error
		if l, err = r.w.lease(o); err != nil {
			return Handle{}, err
		}
		r.leases[o] = l
	}
	return l.issue(1)
}

// Put is [Writer.Put] for the request.
func (r *Request) Put(key string, v serde.Value) (Handle, error) {
	return r.w.put(key, v, PutOptions{Request: r})
}

// PutContext is [Writer.PutContext] for the request.
func (r *Request) PutContext(ctx context.Context, key string, v serde.Value, o PutOptions) (Handle, error) {
	o.Request = r
	return r.w.PutContext(ctx, key, v, o)
}

// Reserve is [Writer.Reserve]; the handle that Commit returns is the request's.
func (r *Request) Reserve(key string, v serde.Value) (*Reservation, error) {
	return r.w.ReserveWith(key, v, PutOptions{Request: r})
}

// Commit says that the handles were sent, or are about to be: the engine may read
// from now on.
func (r *Request) Commit() error {
	if err := r.enter(); err != nil {
		return err
	}
	defer r.w.mu.Unlock()
	r.setState(requestSent)
	for _, l := range r.leases {
		l.markSent()
	}
	return nil
}

// Rollback ends a request that was not sent and never will be: what it issued
// counts as never issued. It does nothing after Commit.
func (r *Request) Rollback() { r.end(requestOpen, (*Lease).takeBack, false) }

// Finish ends a request that the engine reported as finished: every worker has
// resolved its handles. Before Commit it does nothing, since that is for Rollback,
// and is counted in Stats.Misused: the request is open as before, and keeps what it
// has. When the request has ended it does nothing.
func (r *Request) Finish() { r.end(requestSent, nil, false) }

// Abort ends a request that was cancelled after it was sent: a worker may still
// read, so with the policy Pool its objects go into quarantine, until the readers'
// counts are complete, a [Fence] passes, or Options.QuarantineTTL is over. Before
// Commit it does nothing and is counted, as Finish is.
func (r *Request) Abort() { r.end(requestSent, nil, true) }

func (r *Request) end(from requestState, first func(*Lease), aborted bool) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if r.state == requestOpen && from == requestSent {
		r.w.misused++
	}
	if r.state != from || r.w.closed {
		return
	}
	r.setState(requestEnded)
	delete(r.w.requests, r.id)
	for _, l := range r.leases {
		if first != nil {
			first(l)
		}
		l.end(aborted)
	}
	r.w.wakeShutdown()
}
