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
	l, err := r.lease(o)
	if err != nil {
		return Handle{}, err
	}
	return l.issue(1)
}

// lease returns the lease of o that belongs to the request.
func (r *Request) lease(o *object) (*Lease, error) {
	if l := r.leases[o]; l != nil {
		return l, nil
	}
	l, err := r.w.lease(o)
	if err == nil {
		r.leases[o] = l
	}
	return l, err
}

// leaseOf returns the lease that the request has of the object at a handle.
func (r *Request) leaseOf(h Handle) (*Lease, error) {
	if o := r.w.objects[h.ID]; o != nil && o.address == h.Address && r.leases[o] != nil {
		return r.leases[o], nil
	}
	return nil, fmt.Errorf("%w: handle %d:%d is not of an object of request %s", ErrInvalid, h.Address, h.ID, r.id)
}

// Keep is Lookup without a use: the object stays until the request ends, whether or
// not its handle is sent. Before the handle is sent, [Request.SetUses] has to count
// it. note is PutOptions.Note of the object, and must not be written to. Keep fails
// with [KeyNotFoundError] and [ErrEnded].
func (r *Request) Keep(key string) (h Handle, note []byte, err error) {
	if err := r.enter(); err != nil {
		return Handle{}, nil, err
	}
	defer r.w.mu.Unlock()
	if key == "" {
		return Handle{}, nil, errNoKey()
	}
	o, err := r.w.find(key)
	if err != nil {
		return Handle{}, nil, err
	}
	if _, err := r.lease(o); err != nil {
		return Handle{}, nil, err
	}
	return r.w.handle(o), o.note, nil
}

// SetUses sets how many times the request sends the handle of an object that it
// keeps, looked up or put: one for each place in the request that names the object,
// times the number of children that read it (sampling with n > 1). Every reader
// counts each of them. Zero takes all of them back.
//
// It fails with [ErrFull], and changes nothing, if the readers' count would
// overflow: then send the value inline; with [ErrInvalid] for another handle; and
// with [ErrEnded].
func (r *Request) SetUses(h Handle, n int) error {
	if err := r.enter(); err != nil {
		return err
	}
	defer r.w.mu.Unlock()
	l, err := r.leaseOf(h)
	switch {
	case err != nil:
		return err
	case n < 0:
		return fmt.Errorf("%w: %d uses of key %q", ErrInvalid, n, l.o.key)
	case n < l.issued:
		l.takeBack()
	}
	if n > l.issued {
		_, err = l.issue(n - l.issued)
	}
	return err
}

// Stored returns what a worker will find under a handle of the request, in the way
// of a worker: it verifies the signature with the secret that is in the segment
// now, checks id and place, and decodes the chunk. No use is counted. A handle
// that workers can't use stops their engine, so ask before it is sent.
//
// The value is a view of the segment, valid until Finish, Abort or Rollback ends the
// request, also if the store is abandoned before.
//
// Errors: [SignatureError], [StaleError], [CorruptError]; [ErrInvalid] for a handle
// of an object that the request does not have; [ErrEnded]; [ErrClosed].
func (r *Request) Stored(h Handle) (serde.Value, error) {
	if err := r.w.lock(); err != nil {
		return nil, err
	}
	if r.state == requestEnded {
		defer r.w.mu.Unlock()
		return nil, r.over()
	}
	l, err := r.leaseOf(h)
	r.w.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return l.Stored(h)
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

// ReserveWith is Reserve with options.
func (r *Request) ReserveWith(key string, v serde.Value, o PutOptions) (*Reservation, error) {
	o.Request = r
	return r.w.ReserveWith(key, v, o)
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
		r.letGo(from)
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

// letGo unmaps what Stored gave access to, if the store or a reset of its readers
// has ended the request, and its owner ends it now: a Rollback that comes after
// Commit is not that.
func (r *Request) letGo(from requestState) {
	if r.state != requestEnded {
		return
	}
	for _, l := range r.leases {
		if from == requestSent || !l.sent {
			l.letGo()
		}
	}
}
