package tiertest

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"time"

	"github.com/ringcache/ringcache/tier"
)

// mapLease is a lease of a Map. Its fields are guarded by the lock of the level.
type mapLease struct {
	m           *Map
	id, owner   string
	account     tier.Account
	until       time.Time
	pinned      []*entry
	reserved    []*entry // in the order of Reserve
	noUse       bool
	expired     bool      // until has passed, and reservations are left
	writesUntil time.Time // reservations end then, if it has expired
	ended       bool
	fromRestart bool
}

// Lease implements tier.MemoryLevel.
func (m *Map) Lease(ctx context.Context, o tier.LeaseOptions) (tier.Lease, error) {
	if o.ID == "" || len(o.ID) > 255 || len(o.Owner) > 255 {
		return nil, fmt.Errorf("tiertest: a lease with an ID of %d bytes and an owner of %d: %w", len(o.ID),
			len(o.Owner), fs.ErrInvalid)
	}
	var l *mapLease
	err := m.call(ctx, func() error {
		l = m.leases[o.ID]
		switch {
		case l == nil:
			l = &mapLease{m: m, id: o.ID, owner: o.Owner, until: o.Until, account: o.Account}
			m.leases[o.ID] = l
		case l.owner != o.Owner:
			return fmt.Errorf("tiertest: lease %q is of another owner: %w", o.ID, fs.ErrPermission)
		case l.until.IsZero():
		case o.Until.IsZero() || o.Until.After(l.until):
			l.until, l.expired = o.Until, false
		}
		l.setAccount(o.Account)
		l.noUse = o.NoUse
		m.expire()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Leases implements tier.MemoryLevel.
func (m *Map) Leases() []tier.LeaseState {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	m.expire()
	var states []tier.LeaseState
	for _, l := range m.leases {
		states = append(states, l.state())
	}
	return states
}

// expire takes their pins from leases whose time has passed, and ends them if they have no reservations,
// or those have stayed long enough.
func (m *Map) expire() {
	now := m.o.Now()
	for _, l := range m.leases {
		if !l.expired && !l.until.IsZero() && !now.Before(l.until) {
			l.expire(now)
		}
		if l.expired && (len(l.reserved) == 0 || !now.Before(l.writesUntil)) {
			l.end()
			if l.account != nil {
				l.account.Expired()
			}
		}
	}
}

// expire takes the pins.
func (l *mapLease) expire(now time.Time) {
	if l.until.After(now) {
		now = l.until
	}
	l.expired, l.writesUntil = true, now.Add(tier.WriteTime)
	l.unpinAll()
}

func (l *mapLease) end() {
	l.unpinAll()
	for _, x := range l.reserved {
		l.m.remove(x)
		l.credit(x)
	}
	l.reserved, l.ended = nil, true
	delete(l.m.leases, l.id)
}

// call does something with the lock. The error is that of every element.
func (l *mapLease) call(do func()) error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if err := l.m.begin(); err != nil {
		return err
	}
	defer l.m.calls.Done()
	if l.ended {
		return fmt.Errorf("tiertest: lease %q: %w", l.id, tier.ErrEnded)
	}
	do()
	l.m.expire() // a lease that has expired ends with its last reservation, and what it commits is not pinned
	return nil
}

func (l *mapLease) expiredError() error {
	return fmt.Errorf("tiertest: lease %q: its time has passed: %w", l.id, tier.ErrEnded)
}

// ID implements tier.Lease.
func (l *mapLease) ID() string { return l.id }

// SetUntil implements tier.Lease.
func (l *mapLease) SetUntil(until time.Time) error {
	return l.call(func() { l.until, l.expired = until, false })
}

// Expire implements tier.Lease.
func (l *mapLease) Expire() {
	_ = l.call(func() { // a lease that has ended has no pins
		if !l.expired {
			l.expire(l.m.o.Now())
		}
	})
}

// mostOfMany is what a large lease gives up in ReleaseSome.
const mostOfMany = 64

// ReleaseSome implements tier.Lease.
func (l *mapLease) ReleaseSome() (more bool) {
	_ = l.call(func() { // an ended lease has nothing left
		if more = len(l.pinned)+len(l.reserved) > mostOfMany; !more {
			l.end()
			return
		}
		for range mostOfMany {
			if len(l.pinned) > 0 {
				l.unpin(l.pinned[0].Key)
				continue
			}
			last := len(l.reserved) - 1
			l.m.remove(l.reserved[last])
			l.credit(l.reserved[last])
			l.reserved = l.reserved[:last]
		}
	})
	return more
}

// Release implements tier.Lease.
func (l *mapLease) Release() { _ = l.call(l.end) } // an ended lease has nothing left

// State implements tier.Lease.
func (l *mapLease) State() tier.LeaseState {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if !l.m.closed {
		l.m.expire()
	}
	return l.state()
}

// Summary implements tier.Lease.
func (l *mapLease) Summary() tier.LeaseSummary {
	s := l.State()
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if l.ended {
		return tier.LeaseSummary{Ended: true}
	}
	return tier.LeaseSummary{Pinned: len(s.Pinned), Reserved: len(s.Reserved), Bytes: s.Bytes, Until: s.Until,
		Expired: l.expired}
}

func (l *mapLease) state() tier.LeaseState {
	s := tier.LeaseState{ID: l.id, Owner: l.owner, Until: l.until, FromRestart: l.fromRestart}
	for _, x := range l.pinned {
		s.Pinned = append(s.Pinned, x.Key)
		s.Bytes += l.m.size(x.Object)
	}
	rand.Shuffle(len(s.Pinned), func(i, j int) {
		s.Pinned[i], s.Pinned[j] = s.Pinned[j], s.Pinned[i]
	}) // they have no order
	for _, x := range l.reserved {
		s.Reserved = append(s.Reserved, x.Key)
		s.Bytes += l.m.size(x.Object)
	}
	return s
}
