package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"time"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/tier"
)

// Reserve takes room for objects, in order, as tier.Lease. What the lease has reserved already is answered as
// then: whoever had no answer asks again, and whoever needs more time. ErrFull and ErrTooLarge are also the
// answers about what would be beyond the limits of the process.
func (u *Session) Reserve(name string, objects []tier.Object, d time.Duration) ([]tier.Placed, error) {
	l, err := u.begin(name)
	if err != nil {
		return nil, err
	}
	s := u.s
	defer s.request.Unlock()
	if l, err = s.open(l, name, d); err != nil {
		return nil, err
	}
	most := s.registry.Limits().Held
	placed := tier.ReserveEach(objects, func(o *tier.Object) tier.Placed {
		if err != nil {
			return tier.Placed{Err: err}
		}
		p := l.reserve(o, most)
		if hasEnded(p) { // its time passed just now
			if l, err = s.open(l, name, d); err == nil {
				p = l.reserve(o, most)
			}
		}
		return p
	})
	if err != nil {
		return nil, err
	}
	for i := range placed {
		if errors.Is(placed[i].Err, tier.ErrFull) { // also for its parent, which says nothing of what is reserved
			placed[i] = l.reserved(&objects[i], placed[i])
		}
	}
	failpoint.Hit("daemon.reserved")
	if !slices.ContainsFunc(placed, isPlaced) {
		l.releaseEmpty()
	}
	return placed, closedAmong(placed)
}

// reserve takes room for an object, or answers for one that the lease has reserved before.
func (l *lease) reserve(o *tier.Object, most int64) tier.Placed {
	if err := o.Validate(); err != nil {
		return tier.Placed{Err: err}
	}
	p := tier.Placed{
		Err: fmt.Errorf("object %v has %d bytes, and a process may have %d: %w", o.Key, o.Size, most, tier.ErrTooLarge),
	}
	if o.Size <= most {
		p = l.t.Reserve([]tier.Object{*o})[0]
	}
	if p.Err == nil {
		failpoint.Hit("daemon.reserve")
		return p
	}
	return l.reserved(o, p)
}

// reserved answers for an object that the lease has reserved before; for any other the answer is p.
func (l *lease) reserved(o *tier.Object, p tier.Placed) tier.Placed {
	if own := l.t.Held([]tier.Key{o.Key})[0]; errors.Is(own.Err, tier.ErrPending) {
		return again(o, own)
	}
	return p
}

// again answers for what the lease has reserved already. The cost may differ: it is a hint, and the first one counts.
func again(o *tier.Object, own tier.Placed) tier.Placed {
	was, asked := own.Object, *o
	same := bytes.Equal(was.Note, asked.Note)
	was.Note, asked.Note, asked.Cost = nil, nil, was.Cost
	if !same || !reflect.DeepEqual(was, asked) {
		return tier.Placed{
			Err: fmt.Errorf("object %v is reserved already, with another description; abort it first: %w",
				o.Key, fs.ErrInvalid),
		}
	}
	own.Err = nil
	return own
}

// Fill calls fill with the bytes of those keys that a lease has reserved. No end of the process ends the reservations
// meanwhile: what a lease has lost may be another's.
func (u *Session) Fill(name string, keys []tier.Key, fill func(i int, b []byte)) error {
	return u.within(name, func(l *lease) {
		for i, p := range l.t.Held(keys) {
			if errors.Is(p.Err, tier.ErrPending) {
				fill(i, p.Bytes)
			}
		}
	})
}

// Commit publishes what a lease has reserved, in order, and returns how many it published. With keep, objects
// stay pinned, for at least d; 0 is the ordinary time. The error is tier.ErrEnded of what the lease has not
// reserved and is not there; if it is there, it was committed, by an earlier call whose answer was lost, or
// by somebody else.
func (u *Session) Commit(name string, keys []tier.Key, keep bool,
	d time.Duration) (errs []error, published int, err error) {
	l, err := u.begin(name)
	if err != nil {
		return nil, 0, err
	}
	r := u.s.registry
	defer u.s.request.Unlock()
	if l != nil && keep {
		// What has ended is found to have by Commit.
		if err := l.extend(r.clock().Add(r.Limits().time(d))); err != nil && !errors.Is(err, tier.ErrEnded) {
			return nil, 0, explain(err)
		}
	}
	if l == nil {
		errs = slices.Repeat([]error{tier.ErrEnded}, len(keys))
	} else {
		errs = l.t.Commit(keys)
	}
	failpoint.Hit("daemon.committed")
	var done []tier.Key
	for i, k := range keys {
		switch {
		case errs[i] == nil:
			done = append(done, k)
		case errors.Is(errs[i], tier.ErrEnded):
			if errs[i] = noLease(name); !keep && r.isThere(k) {
				errs[i] = nil
			}
		case errors.Is(errs[i], tier.ErrNotFound) && !errors.Is(errs[i], tier.ErrCorrupt):
			errs[i] = l.committed(k, keep)
		}
	}
	if l != nil {
		if !keep {
			l.t.Unpin(done)
		}
		l.releaseEmpty()
	}
	return errs, len(done), closedIn(errs)
}

// committed answers for what is to be committed and not reserved.
func (l *lease) committed(k tier.Key, keep bool) error {
	if keep {
		if l.pin([]tier.Key{k}, false)[0].Err == nil {
			return nil
		}
	} else if l.s.registry.isThere(k) {
		return nil
	}
	return fmt.Errorf("lease %q has not reserved object %v: %w", l.name, k, tier.ErrEnded)
}

// Absent reports whether no level has an object, as far as that is known without asking one: memory has it not, and is
// the only level.
func (u *Session) Absent(k tier.Key) bool {
	r := u.s.registry
	return r.alone && errors.Is(r.memory.Stat(context.Background(), []tier.Key{k})[0].Err, tier.ErrNotFound)
}

// isThere reports whether an object is in memory.
func (r *Registry) isThere(k tier.Key) bool {
	return r.memory.Stat(context.Background(), []tier.Key{k})[0].Err == nil
}

// Abort gives up what a lease has reserved. The error is tier.ErrEnded of what it has not.
func (u *Session) Abort(name string, keys []tier.Key) ([]error, error) {
	l, err := u.begin(name)
	if err != nil {
		return nil, err
	}
	defer u.s.request.Unlock()
	if l == nil {
		return slices.Repeat([]error{noLease(name)}, len(keys)), nil
	}
	errs := l.t.Abort(keys)
	failpoint.Hit("daemon.aborted")
	for i, err := range errs {
		if errors.Is(err, tier.ErrNotFound) {
			errs[i] = fmt.Errorf("%w: %w", tier.ErrEnded, err)
		}
	}
	l.releaseEmpty()
	return errs, closedIn(errs)
}
