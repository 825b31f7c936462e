package memory

import (
	"fmt"
	"slices"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/tier"
)

// Reserve implements tier.Lease.
func (x *lease) Reserve(objects []tier.Object) []tier.Placed {
	if err := x.enterUnexpired(); err != nil {
		return slices.Repeat([]tier.Placed{{Err: err}}, len(objects))
	}
	defer x.leave()
	placed := make([]tier.Placed, len(objects))
	fresh := make([]*item, 0, len(objects))
	for i := range objects {
		it, err := x.reserve(&objects[i])
		if placed[i].Err = err; err == nil {
			fresh = append(fresh, it)
			placed[i], placed[i].Err = x.placed(it)
		}
	}
	failpoint.Hit("tier.memory.reserve")
	x.recordAll(fresh, placed)
	return placed
}

// reserve takes room for an object. The reservation is not in the table yet.
func (x *lease) reserve(o *tier.Object) (*item, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if x.reserved[o.Key] != nil {
		return nil, &objectError{key: o.Key, kind: tier.ErrPending}
	}
	it := &item{object: *o}
	if err := x.charge(it, false); err != nil { // before room is made
		return nil, err
	}
	var err error
	if it.res, err = x.l.reserve(x.req, o); err != nil {
		if x.account != nil {
			x.account.Credit(o.Size)
		}
		return nil, err
	}
	it.o = it.res.Object()
	if x.account != nil {
		x.l.leased.add(it)
	}
	x.add(it)
	return it, nil
}

// Commit implements tier.Lease.
func (x *lease) Commit(keys []tier.Key) []error {
	if err := x.enter(); err != nil {
		return slices.Repeat([]error{err}, len(keys))
	}
	defer x.leave()
	errs := make([]error, len(keys))
	committed := make([]*item, 0, len(keys))
	for i, k := range keys {
		it := x.reserved[k]
		if errs[i] = x.commit(k, it); errs[i] == nil {
			committed = append(committed, it)
		}
	}
	failpoint.Hit("tier.memory.commit")
	err := x.l.touch(func() error {
		for _, it := range committed {
			x.l.table.SetPinned(it.place)
		}
		return nil
	})
	if x.expired && err == nil {
		err = x.drop(committed)
	}
	for i := range errs {
		if errs[i] == nil {
			errs[i] = err
		}
	}
	x.endIfOver()
	return errs
}

// commit publishes a reservation, which is a pin then. The table does not have that yet.
func (x *lease) commit(k tier.Key, it *item) error {
	switch {
	case it == nil:
		return notReserved(x.id, k)
	case it.lost:
		return &objectError{key: k, kind: tier.ErrNotFound, cause: fmt.Errorf("its description was overwritten: %w", tier.ErrCorrupt)}
	}
	if _, err := it.res.Commit(0); err != nil {
		_ = x.drop([]*item{it}) // the reservation is gone
		return answer(k, err)
	}
	delete(x.reserved, k)
	it.res = nil
	x.pinned[k] = it
	return nil
}

func notReserved(lease string, k tier.Key) error {
	return &objectError{key: k, kind: tier.ErrNotFound, cause: fmt.Errorf("lease %q has not reserved it", lease)}
}

// Abort implements tier.Lease.
func (x *lease) Abort(keys []tier.Key) []error {
	if err := x.enter(); err != nil {
		return slices.Repeat([]error{err}, len(keys))
	}
	defer x.leave()
	errs := make([]error, len(keys))
	for i, k := range keys {
		if it := x.reserved[k]; it != nil {
			errs[i] = x.drop([]*item{it})
		} else {
			errs[i] = notReserved(x.id, k)
		}
	}
	x.endIfOver()
	return errs
}

// endIfOver ends a lease that has expired, if its last reservation has gone.
func (x *lease) endIfOver() {
	if x.expired && len(x.reserved) == 0 {
		x.endByTime()
		x.l.startSweep()
	}
}
