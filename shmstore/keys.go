package shmstore

import (
	"fmt"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/shmring/segment"
)

// usable reports whether an object can be given to one more request.
func (s *Store) usable(o *Object) (ok bool) {
	err := s.guard(func() error { ok = s.owner.Usable(o); return nil })
	return ok || err != nil
}

// find returns the object under a key that can be given to one more request.
func (s *Store) find(key string) (*Object, error) {
	o, ok := s.index[key]
	if ok && !s.usable(o) {
		s.retire(o)
		ok = false
	}
	if !ok {
		return nil, s.notFound(key)
	}
	s.evictor.Hit(&o.cached)
	s.releaseIfOver(o)
	return o, nil
}

// Find returns the object under a key. It changes nothing, and keeps nothing: the object may
// go as soon as Find returns. It fails with [ErrNotFound], also if the object can't be given
// to one more request, and with fs.ErrClosed.
func (s *Store) Find(key string) (*Object, error) {
	if err := s.lock(); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	o, ok := s.index[key]
	if !ok || !s.usable(o) {
		return nil, s.notFound(key)
	}
	return o, nil
}

// notFound is the error for a key that is not there, or not yet.
func (s *Store) notFound(key string) error {
	_, pending := s.pending[key]
	return &KeyError{Key: key, Err: ErrNotFound, Reserved: pending}
}

// Remove makes a key absent, so that it can be put anew, and reports whether it was
// there. Handles that were given out can be read as before; the object goes once
// nobody can need it.
func (s *Store) Remove(key string) bool {
	if s.lock() != nil {
		return false
	}
	defer s.mu.Unlock()
	o, ok := s.index[key]
	if ok {
		s.retire(o)
	}
	return ok
}

// Delete is Remove for an object that nobody needs, which goes at once, or when the last [Reader] is done with it. It
// fails with [ErrNotFound]; and with [segment.ErrBusy], and does nothing, if the object is leased, pinned or in
// quarantine.
func (s *Store) Delete(key string) error {
	if err := s.lock(); err != nil {
		return err
	}
	defer s.mu.Unlock()
	o, ok := s.index[key]
	if !ok {
		return s.notFound(key)
	}
	s.releaseIfOver(o)
	if o.leases > 0 || o.pinned || o.quarantined != nil {
		return fmt.Errorf("%w: key %q is needed by %d requests (pinned: %v, in quarantine: %v)", segment.ErrBusy, key, o.leases, o.pinned, o.quarantined != nil)
	}
	s.retire(o)
	return nil
}

// retire frees the key of an object, which itself stays until nobody can need it.
func (s *Store) retire(o *Object) {
	o.state = retired
	delete(s.index, o.key)
	s.abdicate(o)
	s.leave(o)
	s.unpin(o)
	s.watch(o, false)
	_ = s.changed(o) // if the sidecar is gone, it goes when room is needed
}

func (s *Store) forget(o *Object) {
	if o.pinned {
		delete(s.pinned, o)
	}
	if o.state == committed {
		delete(s.index, o.key)
		s.watch(o, false)
	}
	s.abdicate(o)
	s.leave(o)
}

func (s *Store) watch(o *Object, present bool) {
	if s.opt.Watch != nil {
		s.opt.Watch(Change{Key: o.key, ID: o.chunk.ID, Present: present})
	}
}

// Clear makes every key absent, and frees what nobody can need. It fails with
// [segment.ErrBusy] while a reservation or a lease is open. Ids go on.
func (s *Store) Clear() error {
	if err := s.lock(); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if len(s.pending) > 0 {
		return fmt.Errorf("%w: %d reservations are open; commit or discard them before Clear", segment.ErrBusy, len(s.pending))
	}
	if s.leases > 0 {
		return fmt.Errorf("%w: %d leases are open; end their requests before Clear", segment.ErrBusy, s.leases)
	}
	return s.clear()
}

// clear makes every key absent and frees what nobody can still read.
func (s *Store) clear() error {
	failpoint.Hit("pool.clear.begin")
	for o := range s.pinned {
		s.unpin(o)
	}
	for _, o := range s.index {
		s.retire(o)
		failpoint.Hit("pool.clear.one")
	}
	_, err := s.evictAll()
	failpoint.Hit("pool.clear.end")
	return err
}

// checkKey refuses the empty key, unless the PayloadOwner has to decide on it.
func (s *Store) checkKey(key string) error {
	if key == "" && s.opt.Payloads == nil {
		return fmt.Errorf("%w: the key is empty", errInvalid)
	}
	return nil
}
