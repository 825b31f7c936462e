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

// charge asks the account for an object that the lease is about to get, or has. counted has to follow.
func (l *mapLease) charge(x *entry, had bool) error {
	if l.account == nil {
		return nil
	}
	c := tier.Charge{Size: x.Size, Had: had, Objects: l.m.leased.Objects, Bytes: l.m.leased.Bytes,
		Pins: l.m.leased.Pins + 1}
	if x.charged == 0 {
		c.Objects++
		c.Bytes += x.Size
	}
	if err := l.account.Charge(c); err != nil && !had {
		return err
	}
	return nil
}

// counted counts an object that the account was charged for, or n is -1 and the charge is taken back.
func (l *mapLease) counted(x *entry, n int64) {
	if l.account == nil {
		return
	}
	was := x.charged
	x.charged += n
	all := &l.m.leased
	all.Pins += n
	if was == 0 || x.charged == 0 {
		all.Objects += n
		all.Bytes += n * x.Size
	}
}

func (l *mapLease) credit(x *entry) {
	l.counted(x, -1)
	if l.account != nil {
		l.account.Credit(x.Size)
	}
}

// setAccount gives a lease an account in place of the one that it has, if any.
func (l *mapLease) setAccount(a tier.Account) {
	if a == nil {
		return
	}
	has := slices.Concat(l.pinned, l.reserved)
	for _, x := range has {
		l.credit(x)
	}
	l.account = a
	for _, x := range has {
		_ = l.charge(x, true) // it can't be refused
		l.counted(x, 1)
	}
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

func place(x *entry) tier.Placed {
	return tier.Placed{Object: x.Object, Offset: x.offset, Bytes: slices.Clip(x.bytes)}
}

// Pin implements tier.Lease.
func (l *mapLease) Pin(keys []tier.Key) []tier.Placed {
	placed := make([]tier.Placed, len(keys))
	err := l.call(func() {
		for i, k := range keys {
			placed[i] = l.pinOne(k)
		}
	})
	for i := range placed {
		if err != nil {
			placed[i].Err = err
		}
	}
	return placed
}

// PinPrefix implements tier.Lease.
func (l *mapLease) PinPrefix(keys []tier.Key) []tier.Placed {
	placed := make([]tier.Placed, 0, len(keys))
	err := l.call(func() {
		for _, k := range keys {
			if placed = append(placed, l.pinOne(k)); placed[len(placed)-1].Err != nil {
				break
			}
		}
	})
	if err != nil && len(keys) > 0 {
		placed = []tier.Placed{{Err: err}}
	}
	return placed
}

func (l *mapLease) pinOne(k tier.Key) tier.Placed {
	x, err := l.m.find(k)
	switch {
	case l.expired:
		err = l.expiredError()
	case err == nil:
		err = l.pin(x)
	}
	if err != nil {
		return tier.Placed{Err: err}
	}
	if !l.noUse {
		l.m.use(x)
	}
	return place(x)
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
				placed[i] = place(x)
				placed[i].Err = fmt.Errorf("tiertest: object %v: %w", k, tier.ErrPending)
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

func (l *mapLease) pin(x *entry) error {
	if slices.Contains(l.pinned, x) {
		return nil
	}
	if err := l.charge(x, false); err != nil {
		return err
	}
	l.counted(x, 1)
	l.unpin(x.Key) // one that was dropped
	l.pinned = append(l.pinned, x)
	x.pins++
	return nil
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
		l.credit(x)
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
