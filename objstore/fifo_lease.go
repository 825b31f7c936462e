package objstore

import (
	"fmt"

	"github.com/ringcache/ringcache/internal/invariants"
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
	l, held := r.leases.of(o)
	var uses int64
	if n != 0 {
		if uses, err = r.f.use(&o.counts, o.key, n); err != nil {
			return err
		}
	}
	if !held {
		o.leases++
		r.f.leases++
	}
	r.leases.set(o, fifoLease{l.times + n, l.uses + uses})
	return nil
}

// object returns the object of a handle that the request has.
func (r *fifoRequest) object(h serde.Address) (*fifoObject, error) {
	o := r.f.objects[h.ID]
	if _, ok := r.leases.of(o); !ok || o.address != h.Address {
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
	l, _ := r.leases.of(o)
	switch {
	case n < 0:
		return fmt.Errorf("%w: %d uses of key %q", errInvalid, n, o.key)
	case n < l.times:
		r.f.undoUse(&o.counts, l.times, l.uses)
		l = fifoLease{}
		r.leases.set(o, l)
	}
	if n == l.times {
		return nil
	}
	return r.lease(o, n-l.times)
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
	for o := range r.leases.all() {
		if o.key == key {
			r.endLease(o, false)
			r.leases.remove(o)
		}
	}
	r.f.wakeFirst()
	r.f.wakeShutdown()
}

// endLease ends the lease of one object.
func (r *fifoRequest) endLease(o *fifoObject, committed bool) {
	o.leases--
	r.f.leases--
	if l, _ := r.leases.of(o); committed {
		o.sent--
	} else if l.times != 0 {
		r.f.undoUse(&o.counts, l.times, l.uses)
	}
	if invariants.Enabled && (o.sent < 0 || o.leases < o.sent || r.f.leases < o.leases) {
		invariants.Must(fmt.Errorf("objstore: key %q has %d leases, %d sent; all objects have %d", o.key, o.leases, o.sent, r.f.leases))
	}
}

// errNotOurs is the error of a request for a handle of another object.
func errNotOurs(request string, h serde.Address) error {
	return fmt.Errorf("%w: handle %d:%d is not of an object of request %s", errInvalid, h.Address, h.ID, request)
}
