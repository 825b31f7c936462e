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
	if x.expired {
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
	if x.reserved[o.Key] != nil {
		return tier.Placed{}, &objectError{key: o.Key, kind: tier.ErrPending}
	}
	it := &item{object: *o}
	if err := x.charge(it, false); err != nil { // before room is made
		return tier.Placed{}, err
	}
	var err error
	if it.res, err = x.l.reserve(x.req, o); err != nil {
		if x.account != nil {
			x.account.Credit(o.Size)
		}
		return tier.Placed{}, err
	}
	it.o = it.res.Object()
	if x.account != nil {
		x.l.leased.add(it)
	}
	failpoint.Hit("tier.memory.reserve")
	if err := x.put(it); err != nil {
		x.credit(it)
		it.res.Discard()
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
	delete(x.reserved, it.object.Key)
	it.res = nil
	x.pinned[it.object.Key] = it
	err := x.l.touch(func() error { x.l.table.SetPinned(it.place); return nil })
	if x.expired && err == nil {
		err = x.unpin(it)
	}
	return err
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
		if it := x.reserved[k]; it != nil {
			errs[i] = do(it)
		} else {
			errs[i] = &objectError{key: k, kind: tier.ErrNotFound, cause: fmt.Errorf("lease %q has not reserved it", x.id)}
		}
	}
	if x.expired && len(x.reserved) == 0 {
		x.endByTime()
		x.l.startSweep()
	}
	return errs
}
