package promise

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/tier"
)

// Pin keeps objects in place for a lease, for at least d, as tier.StoreLease does; with prefix, as its PinPrefix. 0 is the
// ordinary time. ErrFull is also the answer about what would be beyond the limits of the process.
func (u *Session) Pin(name string, keys []tier.Key, d time.Duration, prefix bool) ([]tier.Placed, error) {
	if err := u.enter(); err != nil {
		return nil, err
	}
	s := u.s
	defer s.mu.Unlock()
	l, err := s.open(name, d)
	if err != nil {
		return nil, err
	}
	placed := l.pin(keys, prefix)
	if ended(placed) {
		if l, err = s.revive(l, d); err != nil {
			return nil, err
		}
		placed = l.pin(keys, prefix)
	}
	l.settle()
	return placed, closedAmong(placed)
}

// ended reports whether a lease has ended unexpectedly.
func ended(placed []tier.Placed) bool {
	return slices.ContainsFunc(placed, func(p tier.Placed) bool { return errors.Is(p.Err, tier.ErrEnded) })
}

func (l *lease) pin(keys []tier.Key, prefix bool) []tier.Placed {
	var placed []tier.Placed
	if prefix {
		placed = l.t.PinPrefix(keys)
	} else {
		placed = l.t.Pin(keys)
	}
	failpoint.Hit("daemon.pinned")
	placed = l.countWishes(keys, placed, prefix)
	var refused []tier.Key
	for i := range placed {
		p, k := &placed[i], keys[i]
		if p.Err != nil {
			continue
		}
		if _, has := l.items[k]; has {
			continue
		}
		if prefix && len(refused) > 0 {
			refused = append(refused, k)
			continue
		}
		if !l.s.client.take(k, p.Object.Size) {
			*p = tier.Placed{Err: fmt.Errorf("object %v is beyond what the process may have beside others; release some: %w", k, tier.ErrFull)}
			refused = append(refused, k)
			continue
		}
		l.s.book.correct(k, p.Object.Size)
		l.put(k, item{size: p.Object.Size})
	}
	if prefix && len(refused) > 0 { // what is behind it is of no use
		placed = placed[:slices.Index(keys, refused[0])+1]
	}
	l.t.Unpin(slices.DeleteFunc(refused, func(k tier.Key) bool { _, has := l.items[k]; return has }))
	return placed
}

// Objects returns how many objects a lease has.
func (u *Session) Objects(name string) int {
	if u.enter() != nil {
		return 0
	}
	defer u.s.mu.Unlock()
	if l := u.s.leases[name]; l != nil {
		return len(l.items)
	}
	return 0
}

// Keys returns the objects that a lease has of a space, in the order of their names.
func (u *Session) Keys(name, space string) ([]tier.Key, error) {
	if err := u.enter(); err != nil {
		return nil, err
	}
	defer u.s.mu.Unlock()
	l := u.s.find(name)
	if l == nil {
		return nil, nil
	}
	keys := make([]tier.Key, 0, len(l.items))
	for k := range l.items {
		if k.Space == space {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b tier.Key) int { return strings.Compare(a.Name, b.Name) })
	return keys, nil
}

// Get returns where objects are that a lease has. The errors are tier.ErrPending, beside the place, of what
// it has reserved, and tier.ErrEnded of what it does not have.
func (u *Session) Get(name string, keys []tier.Key) ([]tier.Placed, error) {
	if err := u.enter(); err != nil {
		return nil, err
	}
	defer u.s.mu.Unlock()
	l := u.s.find(name)
	if l == nil {
		placed := make([]tier.Placed, len(keys))
		for i := range placed {
			placed[i].Err = noLease(name)
		}
		return placed, nil
	}
	placed := l.t.Held(keys)
	for i, p := range placed {
		if errors.Is(p.Err, tier.ErrNotFound) {
			placed[i].Err = fmt.Errorf("%w: %w", tier.ErrEnded, p.Err)
		}
	}
	return placed, closedAmong(placed)
}

func noLease(name string) error {
	return fmt.Errorf("there is no lease %q: it was released, its time has passed, or it had nothing: %w", name, tier.ErrEnded)
}

// Unpin gives up what a lease pins, and its interest in what is pending. What is not there is skipped.
func (u *Session) Unpin(name string, keys []tier.Key) error {
	if err := u.enter(); err != nil {
		return err
	}
	defer u.s.mu.Unlock()
	l := u.s.find(name)
	if l == nil {
		return nil
	}
	l.t.Unpin(keys)
	failpoint.Hit("daemon.unpinned")
	u.s.client.forget(keys)
	l.drop(slices.DeleteFunc(slices.Clone(keys), func(k tier.Key) bool { return l.items[k].reserved })...)
	l.settle()
	return nil
}

// Shrink lets some of what a large lease has go, and reports whether it did: whoever releases it so, first,
// does not keep others waiting for it all.
func (u *Session) Shrink(name string) (bool, error) {
	if err := u.enter(); err != nil {
		return false, err
	}
	defer u.s.mu.Unlock()
	l := u.s.leases[name]
	if l == nil || len(l.items) <= atOnce {
		return false, nil
	}
	var gone, reserved []tier.Key
	for k, it := range l.items {
		if it.reserved {
			reserved = append(reserved, k)
		} else {
			gone = append(gone, k)
		}
		if len(gone)+len(reserved) == atOnce {
			break
		}
	}
	l.t.Unpin(gone)
	for i, err := range l.t.Abort(reserved) {
		if err == nil {
			gone = append(gone, reserved[i])
		}
	}
	l.drop(gone...)
	return len(gone) > 0, nil
}

// Release ends leases. What is not there is skipped.
func (u *Session) Release(names []string) error {
	if err := u.enter(); err != nil {
		return err
	}
	defer u.s.mu.Unlock()
	for _, name := range names {
		if l := u.s.leases[name]; l != nil {
			l.release()
		}
	}
	return nil
}
