package shmstore

import (
	"fmt"

	"github.com/ringcache/ringcache/internal/leases"
)

// Lookup returns the object under a key, which stays until the request ends. n is the
// number of uses that PayloadOwner.Use gets; with 0 the object is only kept. To eviction
// it is a use either way. Lookup fails with [ErrNotFound], [ErrEnded], or the owner's error.
func (r *Request) Lookup(key string, n int) (*Object, error) { return r.lookup(key, n, true) }

// HoldKey is Lookup with 0 uses, and no use to eviction either: for work on an object that
// nobody has asked for, such as copying it elsewhere.
func (r *Request) HoldKey(key string) (*Object, error) { return r.lookup(key, 0, false) }

func (r *Request) lookup(key string, n int, hit bool) (*Object, error) {
	if err := r.lockOpen(); err != nil {
		return nil, err
	}
	defer r.s.mu.Unlock()
	if err := r.s.lifetime.checkKey(key); err != nil {
		return nil, err
	}
	o, err := r.s.lifetime.find(key)
	if err != nil {
		return nil, err
	}
	if hit {
		r.s.space.evictor.Hit(&o.cached)
	}
	if err := r.lease(o, n); err != nil {
		return nil, err
	}
	return o, nil
}

// HoldID keeps the object of an id until the request ends, also one that has lost its
// key, without a use. It fails with [ErrStale].
func (r *Request) HoldID(id uint32) (*Object, error) {
	if err := r.lockOpen(); err != nil {
		return nil, err
	}
	defer r.s.mu.Unlock()
	o := r.s.space.object(id)
	if o == nil || o.state == reserved || o.state == discarded {
		return nil, fmt.Errorf("%w: no object of id %d is in the store", ErrStale, id)
	}
	if err := r.lease(o, 0); err != nil {
		return nil, err
	}
	return o, nil
}

// lease counts n more uses of an object by the request, which leases it.
func (r *Request) lease(o *Object, n int) (err error) {
	l := r.leases.Of(o)
	held := l != nil
	var uses int64
	if n != 0 {
		if uses, err = r.s.lifetime.owner.Use(o, n); err != nil {
			return err
		}
	}
	if !held {
		o.leases++
		r.s.lifetime.leases++
	}
	if err := r.s.lifetime.changed(o); err != nil { // before anyone has the handle
		if n != 0 {
			r.s.lifetime.owner.TakeBack(o, n, uses)
		}
		if !held {
			o.leases--
			r.s.lifetime.leases--
		}
		_ = r.s.lifetime.changed(o) // as it was
		return err
	}
	if !held {
		l = r.leases.Add(o)
	}
	l.Times += n
	l.Uses += uses
	return nil
}

// Drop gives up what the request has under a key, as if it had never been asked for.
// It does nothing once the request was committed.
func (r *Request) Drop(key string) {
	if r.lockOpen() != nil {
		return
	}
	defer r.s.mu.Unlock()
	for l := r.leaseOf(key); l != nil; l = r.leaseOf(key) {
		r.drop(l)
	}
	r.s.wakeShutdown()
}

// DropObject gives up an object that the request has, as Drop does for a key.
func (r *Request) DropObject(o *Object) {
	if r.lockOpen() != nil {
		return
	}
	defer r.s.mu.Unlock()
	if l := r.leases.Of(o); l != nil {
		r.drop(l)
	}
	r.s.wakeShutdown()
}

// leaseOf returns a lease of an object that was put under a key, nil if there is none.
func (r *Request) leaseOf(key string) *leases.Lease[Object] {
	for l := range r.leases.All() {
		if l.Object.key.is(key) {
			return l
		}
	}
	return nil
}

func (r *Request) drop(l *leases.Lease[Object]) {
	gone := *l
	r.leases.Remove(l)
	r.endLease(gone, false, false)
}

// Object returns the object of a handle that the request has. It fails with fs.ErrInvalid
// for another handle, and with [ErrEnded].
func (r *Request) Object(h Handle) (*Object, error) {
	if err := r.lockRunning(); err != nil {
		return nil, err
	}
	defer r.s.mu.Unlock()
	return r.object(h)
}

// object is Object under the store's lock.
func (r *Request) object(h Handle) (*Object, error) {
	o := r.s.space.object(h.ID)
	if o == nil || o.offset() != h.Offset || r.leases.Of(o) == nil {
		return nil, r.notOf(h)
	}
	return o, nil
}

// notOf is the error about a handle of what the request does not have.
func (r *Request) notOf(h Handle) error {
	return fmt.Errorf("%w: the handle of id %d at offset %d is not of an object of request %s", errInvalid, h.ID, h.Offset, r.id)
}

// SetUses makes n the number of times that the request uses an object which it has, see
// Lookup; 0 takes all of them back. It fails with fs.ErrInvalid for another handle, with
// [ErrEnded], or the owner's error, which changes nothing.
func (r *Request) SetUses(h Handle, n int) error {
	if err := r.lockOpen(); err != nil {
		return err
	}
	defer r.s.mu.Unlock()
	o, err := r.object(h)
	if err != nil {
		return err
	}
	l := r.leases.Of(o)
	switch {
	case n < 0:
		return fmt.Errorf("%w: %d uses of key %q", errInvalid, n, o.Key())
	case n < l.Times:
		r.s.lifetime.owner.TakeBack(o, l.Times, l.Uses)
		l.Times, l.Uses = 0, 0
		if err := r.s.lifetime.changed(o); err != nil && n == 0 {
			return err
		}
	}
	if n == l.Times {
		return nil
	}
	return r.lease(o, n-l.Times)
}

// Bytes returns the payload of an object that the request has, in place. It must not
// be written to. It is valid until the request was ended by its owner, whatever becomes
// of the store. It fails with fs.ErrInvalid for another object, and with [ErrEnded].
func (r *Request) Bytes(o *Object) ([]byte, error) {
	if err := r.lockRunning(); err != nil {
		return nil, err
	}
	defer r.s.mu.Unlock()
	if r.leases.Of(o) == nil {
		return nil, r.notOf(o.Handle())
	}
	if !r.mapped {
		if err := r.s.seg.Hold(); err != nil {
			return nil, err
		}
		r.mapped = true
		r.s.lifetime.mapped++
	}
	end := o.offset() + o.length()
	return r.s.seg.Bytes()[o.offset():end:end], nil
}

// endLease ends the lease of one object.
func (r *Request) endLease(l leases.Lease[Object], committed, aborted bool) {
	o := l.Object
	o.leases--
	r.s.lifetime.leases--
	switch {
	case committed:
		o.sent--
	case l.Times != 0:
		r.s.lifetime.owner.TakeBack(o, l.Times, l.Uses)
	}
	if aborted && l.Times != 0 {
		r.s.lifetime.quarantineFor(o)
	}
	_ = r.s.lifetime.changed(o) // what the sidecar has is more cautious
}
