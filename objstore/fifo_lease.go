package objstore

import (
	"fmt"

	"github.com/ringcache/ringcache/internal/invariants"
	"github.com/ringcache/ringcache/internal/leases"
	"github.com/ringcache/ringcache/serde"
)

func (r *fifoRequest) Lookup(key string) (serde.Address, error) {
	if key == "" {
		return serde.Address{}, errNoKey()
	}
	return r.lookup(key, 1)
}

func (r *fifoRequest) lookup(key string, n int) (serde.Address, error) {
	h, _, err := r.find(key, n)
	return h, err
}

func (r *fifoRequest) Keep(key string) (h serde.Address, note []byte, err error) {
	if key == "" {
		return serde.Address{}, nil, errNoKey()
	}
	return r.find(key, 0)
}

// find leases the object under a key, and counts n uses.
func (r *fifoRequest) find(key string, n int) (h serde.Address, note []byte, err error) {
	if err := r.enter(); err != nil {
		return serde.Address{}, nil, err
	}
	defer r.f.unlock()
	o, err := r.f.find(key)
	if err != nil {
		return serde.Address{}, nil, err
	}
	if err := r.lease(o, n); err != nil {
		return serde.Address{}, nil, err
	}
	return r.f.handle(o), o.note, nil
}

// lease counts n more uses of an object by the request, which leases it.
func (r *fifoRequest) lease(o *fifoObject, n int) (err error) {
	l := r.leases.Of(o)
	var uses int64
	if n != 0 {
		if uses, err = r.f.use(&o.counts, o.key, n); err != nil {
			return err
		}
	}
	if l == nil {
		o.leases++
		r.f.leases++
		r.leases.Add(o)
		l = r.leases.Of(o)
	}
	l.Times += n
	l.Uses += uses
	return nil
}

// object returns the object of a handle that the request has.
func (r *fifoRequest) object(h serde.Address) (*fifoObject, error) {
	o := r.f.objects[h.ID]
	if o == nil || r.leases.Of(o) == nil || o.address != h.Address {
		return nil, errNotOurs(r.id, h)
	}
	return o, nil
}

func (r *fifoRequest) SetUses(h serde.Address, n int) error {
	if err := r.enter(); err != nil {
		return err
	}
	defer r.f.unlock()
	o, err := r.object(h)
	if err != nil {
		return err
	}
	l := r.leases.Of(o)
	switch {
	case n < 0:
		return fmt.Errorf("%w: %d uses of key %q", errInvalid, n, o.key)
	case n < l.Times:
		r.f.undoUse(&o.counts, l.Times, l.Uses)
		l.Times, l.Uses = 0, 0
	}
	if n == l.Times {
		return nil
	}
	return r.lease(o, n-l.Times)
}

func (r *fifoRequest) Stored(h serde.Address) (serde.Value, error) {
	key, err := r.keepMapped(h)
	if err != nil {
		return nil, err
	}
	return r.f.chunks.stored(key, h)
}

// keepMapped keeps the segment mapped until the request is ended, and returns the key of
// a handle that it has.
func (r *fifoRequest) keepMapped(h serde.Address) (key string, err error) {
	if err := r.f.lock(); err != nil {
		return "", err
	}
	defer r.f.unlock()
	if r.state == requestEnded {
		return "", r.notOpen()
	}
	o, err := r.object(h)
	if err != nil {
		return "", err
	}
	if !r.mapped {
		if err := r.f.chunks.seg.Hold(); err != nil {
			return "", err
		}
		r.mapped = true
		r.f.mapped++
	}
	return o.key, nil
}

func (r *fifoRequest) Drop(key string) {
	if r.enter() != nil {
		return
	}
	defer r.f.unlock()
	for l := r.leaseOf(key); l != nil; l = r.leaseOf(key) {
		gone := *l
		r.leases.Remove(l)
		r.endLease(gone, false)
	}
	r.f.wakeFirst()
	r.f.wakeShutdown()
}

// leaseOf returns a lease of an object that was put under a key, nil if there is none.
func (r *fifoRequest) leaseOf(key string) *leases.Lease[fifoObject] {
	for l := range r.leases.All() {
		if l.Object.key == key {
			return l
		}
	}
	return nil
}

// endLease ends the lease of one object.
func (r *fifoRequest) endLease(l leases.Lease[fifoObject], committed bool) {
	o := l.Object
	o.leases--
	r.f.leases--
	if committed {
		o.sent--
	} else if l.Times != 0 {
		r.f.undoUse(&o.counts, l.Times, l.Uses)
	}
	if invariants.Enabled && (o.sent < 0 || o.leases < o.sent || r.f.leases < o.leases) {
		invariants.Must(fmt.Errorf("objstore: key %q has %d leases, %d sent; all objects have %d",
			o.key, o.leases, o.sent, r.f.leases))
	}
}

// errNotOurs is the error of a request for a handle of another object.
func errNotOurs(request string, h serde.Address) error {
	return fmt.Errorf("%w: handle %d:%d is not of an object of request %s", errInvalid, h.Address, h.ID, request)
}
