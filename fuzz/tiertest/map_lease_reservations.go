package tiertest

import (
	"fmt"
	"slices"

	"github.com/ringcache/ringcache/tier"
)

// Reserve implements tier.Lease.
func (l *mapLease) Reserve(objects []tier.Object) []tier.Placed {
	placed := make([]tier.Placed, len(objects))
	err := l.call(func() {
		for i, o := range objects {
			x, err := l.reserve(o)
			if err != nil {
				placed[i].Err = err
				continue
			}
			placed[i] = place(x)
		}
	})
	for i := range placed {
		if err != nil {
			placed[i].Err = err
		}
	}
	return placed
}

func (l *mapLease) reserve(o tier.Object) (*entry, error) {
	if l.expired {
		return nil, l.expiredError()
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if x := l.m.objects[o.Key]; x != nil && x.owner == l {
		return nil, fmt.Errorf("tiertest: object %v: %w", o.Key, tier.ErrPending)
	}
	if err := l.charge(&entry{Object: o}, false); err != nil { // before room is made
		return nil, err
	}
	x, err := l.reserveCharged(o)
	if err != nil && l.account != nil {
		l.account.Credit(o.Size)
	} else if err == nil {
		l.counted(x, 1)
	}
	return x, err
}

func (l *mapLease) reserveCharged(o tier.Object) (*entry, error) {
	if x := l.m.objects[o.Key]; x != nil {
		if x.state == there {
			return nil, fmt.Errorf("tiertest: object %v: %w", o.Key, tier.ErrExists)
		}
		return nil, fmt.Errorf("tiertest: object %v: %w", o.Key, tier.ErrPending)
	}
	x, err := l.m.add(o, reserved)
	if err != nil {
		return nil, err
	}
	x.owner = l
	l.reserved = append(l.reserved, x)
	return x, nil
}

// take takes a reservation out of the lease.
func (l *mapLease) take(k tier.Key) (*entry, error) {
	for i, x := range l.reserved {
		if x.Key == k {
			l.reserved = slices.Delete(l.reserved, i, i+1)
			return x, nil
		}
	}
	return nil, fmt.Errorf("tiertest: lease %q has no reservation of object %v: %w", l.id, k, tier.ErrNotFound)
}

// Commit implements tier.Lease.
func (l *mapLease) Commit(keys []tier.Key) []error {
	return l.each(keys, func(x *entry) {
		l.m.publish(x)
		l.unpin(x.Key)                 // one that was dropped
		l.pinned = append(l.pinned, x) // charged as a reservation already
		x.pins++
		if l.expired {
			l.unpin(x.Key)
		}
	})
}

// Abort implements tier.Lease.
func (l *mapLease) Abort(keys []tier.Key) []error {
	return l.each(keys, func(x *entry) {
		l.m.remove(x)
		l.credit(x)
	})
}

// each does something with reservations, which the lease no longer has.
func (l *mapLease) each(keys []tier.Key, do func(*entry)) []error {
	errs := make([]error, len(keys))
	err := l.call(func() {
		for i, k := range keys {
			x, err := l.take(k)
			if errs[i] = err; err == nil {
				do(x)
			}
		}
	})
	for i := range errs {
		if err != nil {
			errs[i] = err
		}
	}
	return errs
}
