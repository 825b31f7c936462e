package registry

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/tier"
)

// Pin keeps objects in place for a lease, for at least d, as tier.StoreLease does; with prefix, as its
// PinPrefix. 0 is the ordinary time. ErrFull is also the answer about what would be beyond the limits of
// the process.
func (u *Session) Pin(name string, keys []tier.Key, d time.Duration, prefix bool) ([]tier.Placed, error) {
	return u.pin(name, keys, d, prefix, false)
}

// PinAgain is Pin for objects that another lease is known to pin for the same engine: they take no more room,
// so the limit of bytes does not refuse them, and the process is charged all the same.
func (u *Session) PinAgain(name string, keys []tier.Key, d time.Duration) ([]tier.Placed, error) {
	return u.pin(name, keys, d, false, true)
}

func (u *Session) pin(name string, keys []tier.Key, d time.Duration, prefix, pinned bool) ([]tier.Placed, error) {
	l, err := u.begin(name)
	if err != nil {
		return nil, err
	}
	defer u.s.request.Unlock()
	var placed []tier.Placed
	for again := true; again; again = slices.ContainsFunc(placed, hasEnded) { // its time passed just now
		if l, err = u.s.open(l, name, d); err != nil {
			return nil, err
		}
		l.setAgain(pinned)
		placed = l.pin(keys, prefix)
		l.setAgain(false)
	}
	if !slices.ContainsFunc(placed, isPlaced) {
		l.releaseEmpty()
	}
	return placed, closedAmong(placed)
}

// setAgain notes whether another lease has what this one is about to pin.
func (l *lease) setAgain(again bool) {
	r := l.s.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	l.again = again
}

// isPlaced reports whether an object is the lease's.
func isPlaced(p tier.Placed) bool { return p.Err == nil }

// hasEnded reports that the lease ended before it got an object.
func hasEnded(p tier.Placed) bool { return errors.Is(p.Err, tier.ErrEnded) }

// pin pins objects, and notes which of them the process waits for.
func (l *lease) pin(keys []tier.Key, prefix bool) []tier.Placed {
	var placed []tier.Placed
	if prefix {
		placed = l.t.PinPrefix(keys)
	} else {
		placed = l.t.Pin(keys)
	}
	failpoint.Hit("daemon.pinned")
	return l.noteInterest(keys, placed, prefix)
}

// Objects returns how many objects a lease has.
func (u *Session) Objects(name string) (n int) {
	_ = u.within(name, func(l *lease) { // what has ended has none
		now := l.t.Summary()
		n = now.Pinned + now.Reserved
	})
	return n
}

// Keys returns the objects that a lease has of a space, in the order of their names.
func (u *Session) Keys(name, space string) (keys []tier.Key, err error) {
	err = u.within(name, func(l *lease) {
		st := l.t.State()
		keys = slices.DeleteFunc(slices.Concat(st.Pinned, st.Reserved),
			func(k tier.Key) bool { return k.Space != space })
		slices.SortFunc(keys, func(a, b tier.Key) int { return strings.Compare(a.Name, b.Name) })
	})
	return keys, err
}

// Get returns where objects are that a lease has. The errors are tier.ErrPending, beside the place, of what
// it has reserved, and tier.ErrEnded of what it does not have.
func (u *Session) Get(name string, keys []tier.Key) ([]tier.Placed, error) {
	l, err := u.begin(name)
	if err != nil {
		return nil, err
	}
	defer u.s.request.Unlock()
	if l == nil {
		return slices.Repeat([]tier.Placed{{Err: noLease(name)}}, len(keys)), nil
	}
	placed := l.t.Held(keys)
	for i, p := range placed {
		if errors.Is(p.Err, tier.ErrNotFound) {
			placed[i].Err = fmt.Errorf("%w: %w", tier.ErrEnded, p.Err)
		}
	}
	return placed, closedAmong(placed)
}

// noLease is the answer about what a lease is asked for that is not there.
func noLease(name string) error {
	return fmt.Errorf("there is no lease %q: it was released, its time has passed, or it had nothing: %w",
		name, tier.ErrEnded)
}

// Unpin gives up what a lease pins, and its interest in what is pending. What is not there is skipped.
func (u *Session) Unpin(name string, keys []tier.Key) error {
	return u.within(name, func(l *lease) {
		l.t.Unpin(keys)
		failpoint.Hit("daemon.unpinned")
		l.dropInterest(keys)
		l.releaseEmpty()
	})
}

// Release ends leases, in order, up to the first one that is large: of that it gives up some, and returns the
// names of those that it has not ended. Whoever calls it again for these does not keep others waiting for
// all. What is not there is skipped.
func (u *Session) Release(names []string) (rest []string, err error) {
	if _, err := u.begin(""); err != nil {
		return nil, err
	}
	defer u.s.request.Unlock()
	for i, l := range u.s.named(names) {
		if l == nil {
			continue
		}
		if l.t.ReleaseSome() {
			return names[i:], nil
		}
		l.remove()
	}
	return nil, nil
}

// named returns the leases of names, nil for a name that none has.
func (s *session) named(names []string) []*lease {
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	found := make([]*lease, len(names))
	for i, name := range names {
		found[i] = s.leases[name]
	}
	return found
}
