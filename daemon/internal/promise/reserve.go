package promise

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/tier"
)

// Reserve takes room for objects, in order, as tier.Lease. What the lease has reserved already is answered as
// then: whoever had no answer asks again, and whoever needs more time. ErrFull and ErrTooLarge are also the
// answers about what would be beyond the limits of the process.
func (u *Session) Reserve(name string, objects []tier.Object, d time.Duration) ([]tier.Placed, error) {
	if err := u.enter(); err != nil {
		return nil, err
	}
	s := u.s
	defer s.mu.Unlock()
	l, err := s.open(name, d)
	if err != nil {
		return nil, err
	}
	most := s.book.Limits().Held
	placed := make([]tier.Placed, len(objects))
	for i := range objects {
		placed[i] = l.reserve(&objects[i], most)
		if errors.Is(placed[i].Err, tier.ErrEnded) {
			if l, err = s.revive(l, d); err != nil {
				return nil, err
			}
			placed[i] = l.reserve(&objects[i], most)
		}
	}
	failpoint.Hit("daemon.reserved")
	l.settle()
	return placed, closedAmong(placed)
}

func (l *lease) reserve(o *tier.Object, most int64) tier.Placed {
	if err := o.Validate(); err != nil {
		return tier.Placed{Err: err}
	}
	if l.items[o.Key].reserved {
		return l.again(o)
	}
	if o.Size > most {
		return tier.Placed{Err: fmt.Errorf("object %v has %d bytes, and a process may have %d: %w", o.Key, o.Size, most, tier.ErrTooLarge)}
	}
	if !l.s.client.take(o.Key, o.Size) {
		return tier.Placed{Err: fmt.Errorf("object %v is beyond what the process may have beside others; release some: %w", o.Key, tier.ErrFull)}
	}
	p := l.t.Reserve([]tier.Object{*o})[0]
	if p.Err != nil {
		b := l.s.book
		b.mu.Lock()
		defer b.mu.Unlock()
		l.s.client.give(o.Key, o.Size)
		return p
	}
	failpoint.Hit("daemon.reserve")
	l.s.book.correct(o.Key, o.Size)
	l.put(o.Key, item{size: o.Size, reserved: true})
	return p
}

// again answers for what the lease has reserved already.
func (l *lease) again(o *tier.Object) tier.Placed {
	p := l.t.Held([]tier.Key{o.Key})[0]
	switch was := p.Object; {
	case !errors.Is(p.Err, tier.ErrPending):
	case was.Size != o.Size, was.Parent != o.Parent, was.Tenant != o.Tenant, !bytes.Equal(was.Note, o.Note):
		p = tier.Placed{Err: fmt.Errorf("object %v is reserved already, with another size, note, parent or tenant; abort it first: %w", o.Key, fs.ErrInvalid)}
	default:
		p.Err = nil
	}
	return p
}

// Commit publishes what a lease has reserved, in order, and returns how many it published. With keep, objects
// stay pinned, for at least d; 0 is the ordinary time. The error is tier.ErrEnded of what the lease has not
// reserved and is not there; if it is there, it was committed, by an earlier call whose answer was lost, or
// by somebody else.
func (u *Session) Commit(name string, keys []tier.Key, keep bool, d time.Duration) (errs []error, published int, err error) {
	if err := u.enter(); err != nil {
		return nil, 0, err
	}
	s := u.s
	defer s.mu.Unlock()
	l := s.find(name)
	if l != nil && keep {
		err := l.extend(s.book.clock().Add(s.book.Limits().time(d)))
		if errors.Is(err, tier.ErrEnded) { // the store's clock is ahead
			l.release()
			l = nil
		} else if err != nil {
			return nil, 0, explain(err)
		}
	}
	if l == nil {
		errs := make([]error, len(keys))
		for i, k := range keys {
			if errs[i] = noLease(name); !keep && s.book.isThere(k) {
				errs[i] = nil
			}
		}
		return errs, 0, nil
	}
	errs = l.t.Commit(keys)
	failpoint.Hit("daemon.committed")
	var done []tier.Key
	odd := false
	for i, k := range keys {
		it := l.items[k]
		switch {
		case errs[i] == nil && it.reserved:
			it.reserved = false
			l.items[k] = it
			l.reserved--
			done = append(done, k)
		case errors.Is(errs[i], tier.ErrNotFound) && !it.reserved:
			errs[i] = l.committed(k, keep)
		default:
			odd = true
		}
	}
	if !keep {
		l.t.Unpin(done)
		l.drop(done...)
	}
	if odd {
		if err := l.load(); err != nil {
			return nil, len(done), explain(err)
		}
	}
	l.settle()
	return errs, len(done), closedIn(errs)
}

// committed answers for what is to be committed and not reserved.
func (l *lease) committed(k tier.Key, keep bool) error {
	if keep {
		if _, has := l.items[k]; has || !l.lapsed && l.pin([]tier.Key{k}, false)[0].Err == nil {
			return nil
		}
	} else if l.s.book.isThere(k) {
		return nil
	}
	return fmt.Errorf("lease %q has not reserved object %v: %w", l.name, k, tier.ErrEnded)
}

// isThere reports whether an object is in memory.
func (b *Book) isThere(k tier.Key) bool {
	return b.memory.Stat(context.Background(), []tier.Key{k})[0].Err == nil
}

// Abort gives up what a lease has reserved. The error is tier.ErrEnded of what it has not.
func (u *Session) Abort(name string, keys []tier.Key) ([]error, error) {
	if err := u.enter(); err != nil {
		return nil, err
	}
	defer u.s.mu.Unlock()
	l := u.s.find(name)
	if l == nil {
		errs := make([]error, len(keys))
		for i := range errs {
			errs[i] = noLease(name)
		}
		return errs, nil
	}
	errs := l.t.Abort(keys)
	failpoint.Hit("daemon.aborted")
	for i, k := range keys {
		switch {
		case errs[i] == nil:
			l.drop(k)
		case errors.Is(errs[i], tier.ErrNotFound):
			errs[i] = fmt.Errorf("%w: %w", tier.ErrEnded, errs[i])
		}
	}
	l.settle()
	return errs, closedIn(errs)
}
