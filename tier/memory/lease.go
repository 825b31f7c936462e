package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/leasetable"
	"github.com/ringcache/ringcache/shmstore"
	"github.com/ringcache/ringcache/tier"
)

// lease is a tier.Lease. It is a request of the store, with a record in the table of leases, and one for each
// object. Everything is done to the store before its record is made, and after its record is gone: see
// package leasetable.
//
// A lease is open until it expires, which takes its pins, see expire. One that has expired and still has
// reservations is open again after SetUntil. Without reservations, and by Release, it ends: its record
// goes at once, in one step for the next process, and what it has in slices.
type lease struct {
	l         *Level
	id, owner string

	// Guarded by the lock of the level.
	account     tier.Account     // nil is nobody
	noUse       bool             // what it pins is not used by that
	record      leasetable.Lease // as it is in the table
	place       int              // of the record
	until       time.Time        // as the caller said, with its monotonic reading
	in          *schedule        // where it waits for its time, nil if it does not
	due         int64            // its time there
	at          int              // its place there
	req         *shmstore.Request
	pinned      map[tier.Key]*item
	reserved    map[tier.Key]*item // nil until there is one
	bytes       int64
	expired     bool // pins are gone, or are going
	ended       bool
	inSweeps    bool // it is in Level.sweeps
	fromRestart bool
}

// item is what a lease has of an object.
type item struct {
	object tier.Object
	o      *shmstore.Object
	res    *shmstore.Reservation // nil if it is pinned
	place  int                   // of its record
	lost   bool                  // a reservation whose description was overwritten
}

func (l *Level) newLease(id, owner string) *lease {
	return &lease{l: l, id: id, owner: owner, pinned: map[tier.Key]*item{}}
}

// find returns what the lease has of an object, nil if it does not have it.
func (x *lease) find(k tier.Key) *item {
	if it := x.pinned[k]; it != nil {
		return it
	}
	return x.reserved[k]
}

// all lists what the lease has, pins first.
func (x *lease) all() iter.Seq[*item] {
	return func(yield func(*item) bool) {
		for _, of := range []map[tier.Key]*item{x.pinned, x.reserved} {
			for _, it := range of {
				if !yield(it) {
					return
				}
			}
		}
	}
}

func (x *lease) size() int { return len(x.pinned) + len(x.reserved) }

// Lease implements tier.MemoryLevel.
func (l *Level) Lease(ctx context.Context, o tier.LeaseOptions) (tier.Lease, error) {
	if o.ID == "" || len(o.ID) > 255 || len(o.Owner) > 255 {
		return nil, fmt.Errorf("memory: the ID of a lease has %d bytes, want 1 to 255, and its owner %d, want at most 255: %w", len(o.ID), len(o.Owner), fs.ErrInvalid)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.calls.Done()
	l.mu.Lock()
	defer l.mu.Unlock()
	for x := l.leases[o.ID]; x != nil && x.ended; x = l.leases[o.ID] { // a large one of before: others come between the slices
		x.sweep(slice)
		l.mu.Unlock()
		l.mu.Lock()
	}
	x, err := l.leaseOf(o)
	if err != nil {
		return nil, fmt.Errorf("memory: lease %q: %w", o.ID, err)
	}
	if l.isDue() {
		l.expire()
	}
	return x, nil
}

func (l *Level) leaseOf(o tier.LeaseOptions) (*lease, error) {
	if x := l.leases[o.ID]; x != nil {
		if x.owner != o.Owner {
			return nil, fmt.Errorf("it is of owner %q, not %q: %w", x.owner, o.Owner, fs.ErrPermission)
		}
		if !x.until.IsZero() && (o.Until.IsZero() || o.Until.After(x.until)) {
			if err := x.setUntil(o.Until); err != nil {
				return nil, err
			}
		}
		x.setAccount(o.Account)
		x.noUse = o.NoUse
		return x, nil
	}
	req, err := l.store.Begin(shmstore.RequestOptions{ID: leasePrefix + o.ID})
	if err != nil {
		return nil, err
	}
	x := l.newLease(o.ID, o.Owner)
	x.account, x.until, x.req, x.noUse = o.Account, o.Until, req, o.NoUse
	x.record = leasetable.Lease{Serial: l.serial + 1, ID: o.ID, Owner: o.Owner, Until: leasetable.Nanoseconds(o.Until)}
	err = l.touch(func() (err error) { x.place, err = l.table.PutLease(x.record); return err })
	if err != nil {
		req.Rollback()
		return nil, err
	}
	l.serial++
	l.leases[o.ID] = x
	x.waitForUntil()
	return x, nil
}

// touch does something to the table, and makes a fault an error: something cut the file short.
func (l *Level) touch(f func() error) error {
	err := fault.Guard(f)
	switch {
	case errors.Is(err, fault.ErrFault):
		return fmt.Errorf("the table of leases of segment %s was cut short: %w: %w", l.o.Name, tier.ErrUnavailable, err)
	case errors.Is(err, leasetable.ErrFull):
		return fmt.Errorf("%w: %w; raise Options.MaxLeases or MaxPins for a new segment", tier.ErrFull, err)
	}
	return err
}

// Leases implements tier.MemoryLevel.
func (l *Level) Leases() []tier.LeaseState {
	if l.enter() != nil {
		return nil
	}
	defer l.calls.Done()
	l.mu.Lock()
	defer l.mu.Unlock()
	states := make([]tier.LeaseState, 0, len(l.leases))
	for _, x := range l.leases {
		if !x.ended {
			states = append(states, x.state())
		}
	}
	slices.SortFunc(states, func(a, b tier.LeaseState) int { return cmp.Compare(a.ID, b.ID) })
	return states
}

// isLeased reports whether a lease has an object.
func (l *Level) isLeased(k tier.Key) bool {
	for _, x := range l.leases {
		if x.find(k) != nil {
			return true
		}
	}
	return false
}

// ID implements tier.Lease.
func (x *lease) ID() string { return x.id }

// enter begins a call of a lease: the caller has the lock of the level until leave.
func (x *lease) enter() error {
	if err := x.l.enter(); err != nil {
		return err
	}
	x.l.mu.Lock()
	if x.ended {
		x.leave()
		return endedError(x.id, "it was released, or its time has passed")
	}
	return nil
}

// enterUnexpired is enter for a call that gives the lease something.
func (x *lease) enterUnexpired() error {
	err := x.enter()
	if err == nil && x.expired {
		x.leave()
		return endedError(x.id, "its time has passed")
	}
	return err
}

func (x *lease) leave() {
	x.l.mu.Unlock()
	x.l.calls.Done()
}

func endedError(lease, why string) error {
	return fmt.Errorf("memory: lease %q: %w: %s", lease, tier.ErrEnded, why)
}

// State implements tier.Lease.
func (x *lease) State() tier.LeaseState {
	if x.l.enter() == nil {
		defer x.l.calls.Done()
	}
	x.l.mu.Lock()
	defer x.l.mu.Unlock()
	return x.state()
}

func (x *lease) state() tier.LeaseState {
	s := tier.LeaseState{ID: x.id, Owner: x.owner, Until: leasetable.Time(x.record.Until), Bytes: x.bytes, FromRestart: x.fromRestart}
	s.Pinned, s.Reserved = slices.AppendSeq(s.Pinned, maps.Keys(x.pinned)), slices.AppendSeq(s.Reserved, maps.Keys(x.reserved))
	order := func(a, b tier.Key) int { return cmp.Or(cmp.Compare(a.Space, b.Space), cmp.Compare(a.Name, b.Name)) }
	slices.SortFunc(s.Pinned, order)
	slices.SortFunc(s.Reserved, order)
	return s
}

// Summary implements tier.Lease.
func (x *lease) Summary() tier.LeaseSummary {
	if x.l.enter() == nil {
		defer x.l.calls.Done()
	}
	x.l.mu.Lock()
	defer x.l.mu.Unlock()
	if x.ended {
		return tier.LeaseSummary{Ended: true}
	}
	return tier.LeaseSummary{
		Pinned: len(x.pinned), Reserved: len(x.reserved), Bytes: x.bytes, Until: leasetable.Time(x.record.Until), Expired: x.expired,
	}
}
