package tiertest

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ringcache/ringcache/tier"
)

// mapLease is a lease of a Map. Its fields are guarded by the lock of the level.
type mapLease struct {
	m           *Map
	id, owner   string
	until       time.Time
	pinned      []*entry
	reserved    []*entry // in the order of Reserve
	lapsed      bool     // until has passed, and reservations are left
	ended       bool
	fromRestart bool
}

// Lease implements tier.MemoryLevel.
func (m *Map) Lease(ctx context.Context, o tier.LeaseOptions) (tier.Lease, error) {
	if o.ID == "" || len(o.ID) > 255 || len(o.Owner) > 255 {
		return nil, fmt.Errorf("tiertest: a lease with an ID of %d bytes and an owner of %d: %w", len(o.ID), len(o.Owner), fs.ErrInvalid)
	}
	var l *mapLease
	err := m.call(ctx, func() error {
		l = m.leases[o.ID]
		switch {
		case l == nil:
			l = &mapLease{m: m, id: o.ID, owner: o.Owner, until: o.Until}
			m.leases[o.ID] = l
		case l.owner != o.Owner:
			return fmt.Errorf("tiertest: lease %q is of another owner: %w", o.ID, fs.ErrPermission)
		case l.until.IsZero():
		case o.Until.IsZero() || o.Until.After(l.until):
			l.until = o.Until
			l.lapsed = false
		}
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

// expire takes their pins from leases whose time has passed, and ends them if they have no reservations.
func (m *Map) expire() {
	now := m.o.Now()
	for _, l := range m.leases {
		if l.until.IsZero() || now.Before(l.until) {
			continue
		}
		l.lapsed = true
		l.unpinAll()
		if len(l.reserved) == 0 {
			l.end()
		}
	}
}

func (l *mapLease) end() {
	l.unpinAll()
	for _, x := range l.reserved {
		l.m.remove(x)
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
	l.m.expire() // a lease that lapsed ends with its last reservation, and what it commits is not pinned
	return nil
}

func (l *mapLease) lapsedError() error {
	return fmt.Errorf("tiertest: lease %q: its time has passed: %w", l.id, tier.ErrEnded)
}

// ID implements tier.Lease.
func (l *mapLease) ID() string { return l.id }

func place(x *entry) tier.Placed {
	return tier.Placed{Object: x.Object, Offset: x.offset, Bytes: slices.Clip(x.bytes)}
}

// Pin implements tier.Lease.
func (l *mapLease) Pin(keys []tier.Key) []tier.Placed {
	placed := make([]tier.Placed, len(keys))
	err := l.call(func() {
		for i, k := range keys {
			x, err := l.m.find(k)
			switch {
			case l.lapsed:
				placed[i].Err = l.lapsedError()
			case err != nil:
				placed[i].Err = err
			default:
				l.pin(x)
				l.m.use(x)
				placed[i] = place(x)
			}
		}
	})
	for i := range placed {
		if err != nil {
			placed[i].Err = err
		}
	}
	return placed
}

// Held implements tier.Lease.
func (l *mapLease) Held(keys []tier.Key) []tier.Placed {
	placed := make([]tier.Placed, len(keys))
	err := l.call(func() {
		of := func(in []*entry, k tier.Key) *entry {
			if i := slices.IndexFunc(in, func(x *entry) bool { return x.Key == k }); i >= 0 {
				return in[i]
			}
			return nil
		}
		for i, k := range keys {
			if x := of(l.pinned, k); x != nil {
				placed[i] = place(x)
			} else if x := of(l.reserved, k); x != nil {
				placed[i] = tier.Placed{Object: x.Object, Offset: x.offset, Err: fmt.Errorf("tiertest: object %v: %w", k, tier.ErrPending)}
			} else {
				placed[i].Err = fmt.Errorf("tiertest: lease %q does not have object %v: %w", l.id, k, tier.ErrNotFound)
			}
		}
	})
	for i := range placed {
		if err != nil {
			placed[i].Err = err
		}
	}
	return placed
}

func (l *mapLease) pin(x *entry) {
	if slices.Contains(l.pinned, x) {
		return
	}
	l.unpin(x.Key) // one that was dropped
	l.pinned = append(l.pinned, x)
	x.pins++
}

func (l *mapLease) unpin(k tier.Key) {
	for i, x := range l.pinned {
		if x.Key != k {
			continue
		}
		l.pinned = slices.Delete(l.pinned, i, i+1)
		x.pins--
		if x.pins == 0 && l.m.dropped[x] {
			delete(l.m.dropped, x)
			l.m.bytes -= l.m.size(x.Object)
		}
		return
	}
}

func (l *mapLease) unpinAll() {
	for len(l.pinned) > 0 {
		l.unpin(l.pinned[0].Key)
	}
}

// Unpin implements tier.Lease.
func (l *mapLease) Unpin(keys []tier.Key) {
	_ = l.call(func() { // a lease that has ended has no pins
		for _, k := range keys {
			l.unpin(k)
		}
	})
}

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
	if l.lapsed {
		return nil, l.lapsedError()
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
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
		l.pin(x)
	})
}

// Abort implements tier.Lease.
func (l *mapLease) Abort(keys []tier.Key) []error { return l.each(keys, l.m.remove) }

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

// SetUntil implements tier.Lease.
func (l *mapLease) SetUntil(until time.Time) error {
	return l.call(func() { l.until, l.lapsed = until, false })
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

func (l *mapLease) state() tier.LeaseState {
	s := tier.LeaseState{ID: l.id, Owner: l.owner, Until: l.until, FromRestart: l.fromRestart}
	for _, x := range l.pinned {
		s.Pinned = append(s.Pinned, x.Key)
		s.Bytes += l.m.size(x.Object)
	}
	rand.Shuffle(len(s.Pinned), func(i, j int) { s.Pinned[i], s.Pinned[j] = s.Pinned[j], s.Pinned[i] }) // they have no order
	for _, x := range l.reserved {
		s.Reserved = append(s.Reserved, x.Key)
		s.Bytes += l.m.size(x.Object)
	}
	return s
}
