package shmstore

import (
	"fmt"
	"sync"
	"time"

	"github.com/ringcache/ringcache/internal/leases"
	"github.com/ringcache/ringcache/internal/line"
)

// RequestOptions say whose a request is.
type RequestOptions struct {
	// ID is its owner: a request to an engine, a connection of a daemon. No other open
	// request may have it.
	ID string
}

// Request keeps objects in the store, for its owner: what it looks up, holds or puts
// stays until it ends.
//
//	r, err := s.Begin(shmstore.RequestOptions{ID: "request-1"})
//	defer r.Rollback() // does nothing after Commit
//	o, err := r.Lookup(key, 1) // or r.Put, r.Reserve
//	send(o.Handle())
//	r.Commit()
//	// later: r.Finish(), or r.Abort()
//
// Its methods may be called by any goroutine. The zero Request belongs to no store:
// nothing may be called before [Request.BeginIn]. A Request must not be copied.
type Request struct {
	_     [0]sync.Mutex // go vet reports copies
	s     *Store
	id    string
	since time.Time

	// Guarded by the store's lock.
	state   requestState
	leases  leases.Leases[Object]
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

// Begin starts a request.
func (s *Store) Begin(o RequestOptions) (*Request, error) {
	r := new(Request)
	if err := r.BeginIn(s, o); err != nil {
		return nil, err
	}
	return r, nil
}

// BeginIn starts a request of a store in the memory of r, and allocates nothing: r is a zero Request, or
// one of that store which has ended and which nobody else uses any more. BeginIn fails with fs.ErrInvalid,
// and changes nothing, if r has not ended, if a reservation of r was neither committed nor discarded, or if
// r was ended by others while its owner has its bytes; and with the errors of Begin. The store has no pool of
// ended requests: a deferred Rollback of the last owner would end the request of the next one.
func (r *Request) BeginIn(s *Store, o RequestOptions) error {
	if err := s.lock(); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if s.state.Stopping {
		return s.errStopping()
	}
	if _, ok := s.lifetime.requests[o.ID]; ok {
		return fmt.Errorf("%w: request %q is open already", errInvalid, o.ID)
	}
	switch {
	case r.s == nil: // not written again: who ends the request twice reads it without the lock
		r.s = s
	case r.s != s || r.state != requestEnded || r.mapped || r.pending > 0 || len(r.waiters) > 0:
		return fmt.Errorf("%w: request %q is in use; end it and its reservations before it begins again, in its own store", errInvalid, r.id)
	}
	r.id, r.since, r.state, r.sent = o.ID, time.Now(), requestOpen, false
	s.lifetime.requests[o.ID] = r
	return nil
}

// Ended reports whether the request has ended.
func (r *Request) Ended() bool {
	if r.s.lock() != nil {
		return true
	}
	defer r.s.mu.Unlock()
	return r.state == requestEnded
}

// lockOpen takes the store's lock for a request that was not committed.
func (r *Request) lockOpen() error {
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

// lockRunning is lockOpen for a request that may be committed.
func (r *Request) lockRunning() error {
	if err := r.s.lock(); err != nil {
		return err
	}
	if r.state == requestEnded {
		err := r.notOpen()
		r.s.mu.Unlock()
		return err
	}
	return nil
}

// notOpen returns why the request takes nothing more.
func (r *Request) notOpen() error {
	if r.state == requestCommitted {
		return fmt.Errorf("%w: %s was committed, so its handles may be with their readers; begin another request", ErrEnded, r.id)
	}
	return fmt.Errorf("%w: %s was finished, aborted or rolled back, or its readers were reset", ErrEnded, r.id)
}

// setState enters the next state, in which nobody waits for room.
func (r *Request) setState(state requestState) {
	r.state = state
	for w := range r.waiters {
		r.s.space.waiters.Wake(w)
	}
	if state == requestEnded {
		delete(r.s.lifetime.requests, r.id)
	}
}
