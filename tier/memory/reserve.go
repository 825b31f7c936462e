package memory

import (
	"fmt"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/tier"
)

// Reserve implements tier.Lease.
func (x *lease) Reserve(objects []tier.Object) []tier.Placed {
	if err := x.enter(); err != nil {
		return failAll(len(objects), err)
	}
	defer x.leave()
	if x.lapsed {
		return failAll(len(objects), x.endedError("its time has passed"))
	}
	placed := make([]tier.Placed, len(objects))
	for i := range objects {
		placed[i], placed[i].Err = x.reserve(&objects[i])
	}
	return placed
}

func (x *lease) reserve(o *tier.Object) (tier.Placed, error) {
	if err := o.Validate(); err != nil {
		return tier.Placed{}, err
	}
	res, err := x.l.reserve(x.req, o)
	if err != nil {
		return tier.Placed{}, err
	}
	it := &item{object: *o, o: res.Object(), res: res}
	failpoint.Hit("tier.memory.reserve")
	if err := x.put(it); err != nil {
		res.Discard()
		return tier.Placed{}, answer(o.Key, err)
	}
	return x.placed(it)
}

// Commit implements tier.Lease.
func (x *lease) Commit(keys []tier.Key) []error { return x.each(keys, x.commit) }

func (x *lease) commit(it *item) error {
	if it.lost {
		return &objectError{key: it.object.Key, kind: tier.ErrNotFound, cause: fmt.Errorf("its description was overwritten: %w", tier.ErrCorrupt)}
	}
	if _, err := it.res.Commit(0); err != nil {
		_ = x.drop(it) // the reservation is gone
		return answer(it.object.Key, err)
	}
	failpoint.Hit("tier.memory.commit")
	it.res = nil
	x.reserved--
	return x.l.touch(func() error { x.l.table.SetPinned(it.place); return nil })
}

// Abort implements tier.Lease.
func (x *lease) Abort(keys []tier.Key) []error { return x.each(keys, x.abort) }

func (x *lease) abort(it *item) error {
	if err := x.drop(it); err != nil {
		return err
	}
	failpoint.Hit("tier.memory.abort")
	it.res.Discard()
	return nil
}

// each does something with reservations.
func (x *lease) each(keys []tier.Key, do func(*item) error) []error {
	errs := make([]error, len(keys))
	if err := x.enter(); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	defer x.leave()
	for i, k := range keys {
		if it := x.items[k]; it != nil && it.res != nil {
			errs[i] = do(it)
		} else {
			errs[i] = &objectError{key: k, kind: tier.ErrNotFound, cause: fmt.Errorf("lease %q has not reserved it", x.id)}
		}
	}
	if x.lapsed {
		x.l.lapse(x) // nothing more is pinned, and with the last reservation it ends
	}
	return errs
}
