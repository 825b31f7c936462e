package registry

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/tier"
)

// slack is how much longer than asked for a lease lasts, so that asking again soon changes nothing in
// the table.
const slack = time.Second

// lease is the name of a lease of a session, and its account. What it has, and until when, the memory
// level knows.
//
// A name is added before its lease is opened, so that the account can be charged, and removed after the lease
// has ended: by a release, or by time, which the level reports through Expired. In between the level may have
// ended the lease already, so whatever a request does with it may be answered tier.ErrEnded.
type lease struct {
	s    *session
	name string
	t    *tier.StoreLease // set by the request that opens it

	removed bool // from the session; guarded by the lock of the registry
	again   bool // see PinAgain; guarded by the lock of the registry
	// interest is until when the lease stays without objects, for what is pending. A request sets it.
	interest time.Time
}

// open returns a lease that lasts for at least d, within the limits; 0 is the ordinary time. l is the one that
// has the name, nil if there is none.
func (s *session) open(l *lease, name string, d time.Duration) (*lease, error) {
	r := s.registry
	until := r.clock().Add(r.Limits().time(d))
	if l != nil {
		if err := l.extend(until); !errors.Is(err, tier.ErrEnded) {
			return l, explain(err)
		}
	}
	l, err := s.add(name)
	if err != nil {
		return nil, err
	}
	l.t, err = r.store.Lease(context.Background(), tier.LeaseOptions{
		ID: s.key + "/" + name, Owner: s.owner, Until: until.Add(slack), Account: l,
	})
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.removeLease(l)
		return nil, explain(err)
	}
	failpoint.Hit("daemon.lease")
	return l, nil
}

// explain returns an error of the store about a lease as one of the registry.
func explain(err error) error {
	switch {
	case errors.Is(err, tier.ErrFull):
		return fmt.Errorf("%w: the segment's table of leases is full; release some, or raise max-leases, for a new segment", ErrLimit)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %w", ErrOwner, err)
	case errors.Is(err, fs.ErrClosed):
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return err
}

// add adds the name of a lease that is about to be opened, if there may be one more.
func (s *session) add(name string) (*lease, error) {
	r := s.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	limits := r.limits
	switch all, mine := int64(r.counts.Leases), int64(s.client.leases); {
	case !quarter(limits.Table).allows(mine, 1, limits.Table-all-1):
		return nil, fmt.Errorf("%w: process %d has %d leases and others have %d, which leaves it no more; release some, or raise max-leases, for a new segment",
			ErrLimit, s.client.PID(), mine, all-mine)
	case len(s.leases) >= limits.Leases:
		return nil, fmt.Errorf("%w: session %s has %d leases; release some, or raise max-session-leases",
			ErrLimit, s.id(), len(s.leases))
	}
	return r.addLease(s, name), nil
}

// addLease adds the name of a lease. The caller has the lock.
func (r *Registry) addLease(s *session, name string) *lease {
	l := &lease{s: s, name: name}
	s.leases[name] = l
	s.client.leases++
	r.counts.Leases++
	if s.waiting {
		r.counts.Waiting++
	}
	return l
}

// removeLease removes the name of a lease that has ended. The caller has the lock.
func (r *Registry) removeLease(l *lease) {
	s := l.s
	if l.removed {
		return
	}
	l.removed = true
	delete(s.leases, l.name)
	s.client.leases--
	r.counts.Leases--
	if s.waiting {
		r.counts.Waiting--
	}
}

// extend makes a lease last until a time, at least. If its time has passed it goes on with the
// reservations that it has, or the error is tier.ErrEnded.
func (l *lease) extend(until time.Time) error {
	switch now := l.t.Summary(); {
	case now.Ended:
		return tier.ErrEnded
	case !now.Expired && !now.Until.Before(until):
		return nil
	}
	return l.t.SetUntil(until.Add(slack))
}

// release ends a lease with all it has.
func (l *lease) release() {
	l.t.Release()
	l.remove()
}

// remove removes the name of a lease that was released.
func (l *lease) remove() {
	failpoint.Hit("daemon.released")
	r := l.s.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removeLease(l)
}

// releaseEmpty ends a lease that has nothing, and waits for nothing, or for longer than its time.
func (l *lease) releaseEmpty() {
	now := l.t.Summary()
	if !now.Ended && now.Pinned+now.Reserved == 0 && (now.Expired || !l.s.registry.now().Before(l.interest)) {
		l.release()
	}
}
