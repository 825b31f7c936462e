package shmstore

import (
	"container/heap"
	"fmt"
	"time"

	"github.com/ringcache/ringcache/internal/line"
)

// RequestOptions say whose a request is.
type RequestOptions struct {
	// ID is its owner: a request to an engine, a connection of a daemon. No other open
	// request may have it.
	ID string
	// Deadline, if not zero, is when the request ends by itself: by Rollback, or by
	// Abort if it was committed.
	Deadline time.Time
}

// Request keeps objects in the store, for its owner: what it looks up, holds or puts
// stays until it ends.
//
//	r, err := s.Begin(shmstore.RequestOptions{ID: "request-1"})
//	defer r.Rollback() // does nothing after Commit
//	o, err := r.Lookup(key, 1) // or r.Put, r.Reserve
//	send(s.Handle(o))
//	r.Commit()
//	// later: r.Finish(), or r.Abort()
//
// Its methods may be called by any goroutine.
type Request struct {
	s     *Store
	id    string
	since time.Time

	// Guarded by the store's lock.
	state    requestState
	deadline time.Time
	place    int // in Store.deadlines, -1 if it has none
	expired  bool
	leases   map[*Object]lease
	waiters  map[*line.Waiter]struct{} // those that wait for room for it
	keeps    bool                      // the segment is mapped until it ends
	sent     bool                      // it was committed
}

// lease is the use of one object by one request.
type lease struct {
	times int   // the request took it, as it was said to PayloadOwner.Use
	uses  int64 // that the owner counts for that
}

type requestState uint8

const (
	requestOpen requestState = iota
	requestCommitted
	requestEnded
)

// Begin starts a request.
func (s *Store) Begin(o RequestOptions) (*Request, error) {
	if err := s.lock(); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if s.state.Stopping {
		return nil, s.errStopping()
	}
	if _, ok := s.requests[o.ID]; ok {
		return nil, fmt.Errorf("%w: request %q is open already", errInvalid, o.ID)
	}
	r := &Request{s: s, id: o.ID, since: time.Now(), place: -1}
	s.requests[o.ID] = r
	r.setDeadline(o.Deadline)
	return r, nil
}

// ID returns the request's id.
func (r *Request) ID() string { return r.id }

// Ended reports whether the request has ended.
func (r *Request) Ended() bool {
	if r.s.lock() != nil {
		return true
	}
	defer r.s.mu.Unlock()
	return r.state == requestEnded
}

// enter takes the store's lock for a request that was not committed.
func (r *Request) enter() error {
	if err := r.s.lock(); err != nil {
		return err
	}
	if r.state != requestOpen {
		err := r.notOpen()
		r.s.mu.Unlock()
		return err
	}
	return nil
}

// notOpen returns why the request takes nothing more.
func (r *Request) notOpen() error {
	switch {
	case r.expired:
		return fmt.Errorf("%w: the deadline of %s has passed", ErrEnded, r.id)
	case r.state == requestCommitted:
		return fmt.Errorf("%w: %s was committed, so its handles may be with their readers; begin another request", ErrEnded, r.id)
	}
	return fmt.Errorf("%w: %s was finished, aborted or rolled back, or its readers were reset", ErrEnded, r.id)
}

// become enters the next state, in which nobody waits for room.
func (r *Request) become(state requestState) {
	r.state = state
	for w := range r.waiters {
		r.s.waiters.Wake(w)
	}
	if state == requestEnded {
		delete(r.s.requests, r.id)
		r.setDeadline(time.Time{})
	}
}

// checkKey refuses the empty key, unless the PayloadOwner has to decide on it.
func (s *Store) checkKey(key string) error {
	if key == "" && s.opt.Payloads == nil {
		return fmt.Errorf("%w: the key is empty", errInvalid)
	}
	return nil
}

// Lookup returns the object under a key, which stays until the request ends. n is the
// number of uses that PayloadOwner.Use gets; with 0 the object is only kept. Lookup
// fails with [KeyNotFoundError], [ErrEnded], or the owner's error.
func (r *Request) Lookup(key string, n int) (*Object, error) {
	if err := r.enter(); err != nil {
		return nil, err
	}
	defer r.s.mu.Unlock()
	if err := r.s.checkKey(key); err != nil {
		return nil, err
	}
	o, err := r.s.find(key)
	if err == nil {
		err = r.take(o, n)
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// HoldID keeps the object of an id until the request ends, also one that has lost its
// key, without a use. It fails with [StaleError].
func (r *Request) HoldID(id uint32) (*Object, error) {
	if err := r.enter(); err != nil {
		return nil, err
	}
	defer r.s.mu.Unlock()
	o := r.s.objects[id]
	if o == nil || o.state == reserved || o.state == discarded {
		return nil, &StaleError{Handle: Handle{ID: id}}
	}
	if err := r.take(o, 0); err != nil {
		return nil, err
	}
	return o, nil
}

// take counts n more uses of an object by the request, which leases it.
func (r *Request) take(o *Object, n int) (err error) {
	l, held := r.leases[o]
	var uses int64
	if n != 0 {
		if uses, err = r.s.owner.Use(o.record, n); err != nil {
			return err
		}
	}
	if !held {
		o.leases++
		r.s.leases++
	}
	if err := r.s.changed(o); err != nil { // before anyone has the handle
		if n != 0 {
			r.s.owner.TakeBack(o.record, n, uses)
		}
		if !held {
			o.leases--
			r.s.leases--
		}
		_ = r.s.changed(o) // as it was
		return err
	}
	if r.leases == nil {
		r.leases = map[*Object]lease{}
	}
	r.leases[o] = lease{l.times + n, l.uses + uses}
	return nil
}

// Drop gives up what the request has under a key, as if it had never been asked for.
// It does nothing once the request was committed.
func (r *Request) Drop(key string) {
	if r.enter() != nil {
		return
	}
	defer r.s.mu.Unlock()
	for o, l := range r.leases {
		if o.key == key {
			delete(r.leases, o)
			r.letGo(o, l, false, false)
		}
	}
	r.s.wakeShutdown()
}

// Object returns the object of an id that the request has. It fails with fs.ErrInvalid if
// it has none of that id, and with [ErrEnded].
func (r *Request) Object(id uint32) (*Object, error) {
	if err := r.s.lock(); err != nil {
		return nil, err
	}
	defer r.s.mu.Unlock()
	if r.state == requestEnded {
		return nil, r.notOpen()
	}
	o := r.s.objects[id]
	if _, ok := r.leases[o]; !ok {
		return nil, fmt.Errorf("%w: id %d is not of an object of request %s", errInvalid, id, r.id)
	}
	return o, nil
}

// SetUses makes n the number of times that the request uses an object which it has, see
// Lookup; 0 takes all of them back. It fails with fs.ErrInvalid for another object, with
// [ErrEnded], or the owner's error, which changes nothing.
func (r *Request) SetUses(o *Object, n int) error {
	if err := r.enter(); err != nil {
		return err
	}
	defer r.s.mu.Unlock()
	l, ok := r.leases[o]
	switch {
	case !ok:
		return fmt.Errorf("%w: request %s does not have the object", errInvalid, r.id)
	case n < 0:
		return fmt.Errorf("%w: %d uses of key %q", errInvalid, n, o.key)
	case n < l.times:
		r.s.owner.TakeBack(o.record, l.times, l.uses)
		l = lease{}
		r.leases[o] = l
		if err := r.s.changed(o); err != nil && n == 0 {
			return err
		}
	}
	if n == l.times {
		return nil
	}
	return r.take(o, n-l.times)
}

// Bytes returns the payload of an object that the request has, in place. It must not
// be written to. It is valid until the request was ended by its owner, whatever becomes
// of the store. It fails with fs.ErrInvalid for another object, and with [ErrEnded].
func (r *Request) Bytes(o *Object) ([]byte, error) {
	if err := r.s.lock(); err != nil {
		return nil, err
	}
	defer r.s.mu.Unlock()
	if r.state == requestEnded {
		return nil, r.notOpen()
	}
	if _, ok := r.leases[o]; !ok {
		return nil, fmt.Errorf("%w: request %s does not have the object", errInvalid, r.id)
	}
	if !r.keeps {
		if err := r.s.seg.Hold(); err != nil {
			return nil, err
		}
		r.keeps = true
		r.s.kept++
	}
	from, n := r.s.payload(o)
	return r.s.chunkBytes(o)[from : from+n : from+n], nil
}

// SetDeadline replaces RequestOptions.Deadline; the zero time is none. It fails with
// [ErrEnded].
func (r *Request) SetDeadline(t time.Time) error {
	if err := r.s.lock(); err != nil {
		return err
	}
	defer r.s.mu.Unlock()
	if r.state == requestEnded {
		return r.notOpen()
	}
	r.setDeadline(t)
	return nil
}

// Commit reports that the handles were sent, or are about to be: they may be read from
// now on.
func (r *Request) Commit() error {
	if err := r.enter(); err != nil {
		return err
	}
	defer r.s.mu.Unlock()
	r.become(requestCommitted)
	r.sent = true
	for o, l := range r.leases {
		o.sent++
		if l.times != 0 {
			r.s.owner.Sent(o.record, l.uses)
		}
	}
	return nil
}

// Rollback ends a request that was not sent and never will be: what it used counts as
// never used. It does nothing after Commit.
func (r *Request) Rollback() { r.end(requestOpen, false) }

// Finish ends a request whose readers have done with everything. Before Commit it does
// nothing, since that is for Rollback, and is counted in Stats.Misused: the request is
// open as before. When the request has ended it does nothing.
func (r *Request) Finish() { r.end(requestCommitted, false) }

// Abort ends a request that was cancelled after it was sent: a reader may still look
// for its payloads. So they go into quarantine, until the owner's counts are complete, a
// [Fence] passes, or Options.QuarantineTTL ends it. Before Commit it does nothing and
// is counted, as Finish is.
func (r *Request) Abort() { r.end(requestCommitted, true) }

func (r *Request) end(from requestState, aborted bool) {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.state == requestOpen && from == requestCommitted && !s.state.Closed {
		s.misused++
	}
	if r.state == from && !s.state.Closed {
		r.endNow(aborted)
	}
	// A Rollback that comes after Commit is deferred, and does not end it.
	if r.keeps && r.state == requestEnded && (from == requestCommitted || !r.sent) {
		r.keeps = false
		s.kept--
		s.seg.Release()
	}
	s.wakeShutdown()
}

// endNow ends a request of an open store. What Bytes returned stays valid until the
// owner ends it too.
func (r *Request) endNow(aborted bool) {
	committed := r.state == requestCommitted
	r.become(requestEnded)
	for o, l := range r.leases {
		r.letGo(o, l, committed, aborted)
	}
	r.leases = nil
}

// letGo ends the lease of one object.
func (r *Request) letGo(o *Object, l lease, committed, aborted bool) {
	o.leases--
	r.s.leases--
	switch {
	case committed:
		o.sent--
	case l.times != 0:
		r.s.owner.TakeBack(o.record, l.times, l.uses)
	}
	if aborted && l.times != 0 {
		r.s.quarantine(o)
	}
	_ = r.s.changed(o) // what the sidecar has is more cautious
}

// deadlines are the requests that end by themselves, the first one in front.
type deadlines []*Request

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].deadline.Before(d[j].deadline) }
func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].place, d[j].place = i, j
}
func (d *deadlines) Push(r any) {
	r.(*Request).place = len(*d)
	*d = append(*d, r.(*Request))
}
func (d *deadlines) Pop() any {
	r := (*d)[len(*d)-1]
	r.place = -1
	(*d)[len(*d)-1] = nil
	*d = (*d)[:len(*d)-1]
	return r
}

func (r *Request) setDeadline(t time.Time) {
	if r.place >= 0 {
		heap.Remove(&r.s.deadlines, r.place)
	}
	if r.deadline = t; !t.IsZero() {
		heap.Push(&r.s.deadlines, r)
	}
}

// expire ends the requests whose deadline has passed. Whoever takes the lock calls it.
func (s *Store) expire(now time.Time) {
	for len(s.deadlines) > 0 && !now.Before(s.deadlines[0].deadline) {
		r := s.deadlines[0]
		r.expired = true
		r.endNow(r.state == requestCommitted)
		s.wakeShutdown()
	}
}
