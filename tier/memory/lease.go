package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/leasetable"
	"github.com/ringcache/ringcache/shmstore"
	"github.com/ringcache/ringcache/tier"
)

// lease is a tier.Lease. It is a request of the store, with a record in the table of leases, and one for each
// object. Everything is done to the store before its record is made, and after its record is gone: see
// package leasetable.
type lease struct {
	l         *Level
	id, owner string

	// Guarded by the lock of the level.
	record      leasetable.Lease // as it is in the table
	place       int              // of the record
	until       time.Time
	timedAt     int // place in Level.timed, -1 if it does not end by time
	req         *shmstore.Request
	items       map[tier.Key]*item
	reserved    int // of items
	bytes       int64
	lapsed      bool // until has passed, and reservations are left
	ended       bool
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
	x, err := l.leaseOf(o)
	if err != nil {
		return nil, fmt.Errorf("memory: lease %q: %w", o.ID, err)
	}
	l.expire()
	return x, nil
}

func (l *Level) leaseOf(o tier.LeaseOptions) (*lease, error) {
	if x := l.leases[o.ID]; x != nil {
		switch {
		case x.owner != o.Owner:
			return nil, fmt.Errorf("it is of owner %q, not %q: %w", x.owner, o.Owner, fs.ErrPermission)
		case x.until.IsZero(), !o.Until.IsZero() && !o.Until.After(x.until):
			return x, nil
		}
		return x, x.setUntil(o.Until)
	}
	req, err := l.store.Begin(shmstore.RequestOptions{ID: leasePrefix + o.ID})
	if err != nil {
		return nil, err
	}
	x := &lease{l: l, id: o.ID, owner: o.Owner, until: o.Until, timedAt: -1, req: req, items: map[tier.Key]*item{}}
	x.record = leasetable.Lease{Serial: l.serial + 1, ID: o.ID, Owner: o.Owner, Until: leasetable.Nanoseconds(o.Until)}
	err = l.touch(func() (err error) { x.place, err = l.table.PutLease(x.record); return err })
	if err != nil {
		req.Rollback()
		return nil, err
	}
	l.serial++
	l.leases[o.ID] = x
	l.setTime(x)
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
		states = append(states, x.state())
	}
	slices.SortFunc(states, func(a, b tier.LeaseState) int { return cmp.Compare(a.ID, b.ID) })
	return states
}

// leased reports whether a lease has an object.
func (l *Level) leased(k tier.Key) bool {
	for _, x := range l.leases {
		if x.items[k] != nil {
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
		return x.endedError("it was released, or its time has passed")
	}
	return nil
}

func (x *lease) leave() {
	x.l.mu.Unlock()
	x.l.calls.Done()
}

func (x *lease) endedError(why string) error {
	return fmt.Errorf("memory: lease %q: %w: %s", x.id, tier.ErrEnded, why)
}

func failAll(n int, err error) []tier.Placed {
	placed := make([]tier.Placed, n)
	for i := range placed {
		placed[i].Err = err
	}
	return placed
}

// atOnce is how many objects are pinned or let go at most while others wait for the lock of the level: some 0.1 ms.
const atOnce = 64

// Pin implements tier.Lease.
func (x *lease) Pin(keys []tier.Key) []tier.Placed {
	placed := make([]tier.Placed, 0, len(keys))
	for some := range slices.Chunk(keys, atOnce) {
		placed = x.pinSome(placed, some)
	}
	return placed
}

func (x *lease) pinSome(placed []tier.Placed, keys []tier.Key) []tier.Placed {
	if err := x.enter(); err != nil {
		return append(placed, failAll(len(keys), err)...)
	}
	defer x.leave()
	if x.lapsed {
		return append(placed, failAll(len(keys), x.endedError("its time has passed"))...)
	}
	for _, k := range keys {
		p, err := x.pin(k)
		p.Err = err
		placed = append(placed, p)
	}
	return placed
}

func (x *lease) pin(k tier.Key) (tier.Placed, error) {
	if err := k.Validate(); err != nil {
		return tier.Placed{}, err
	}
	it := x.items[k]
	if it != nil && it.res != nil {
		return tier.Placed{}, &objectError{key: k, kind: tier.ErrPending}
	}
	o, err := x.req.Lookup(keyText(k), 0)
	if err != nil {
		return tier.Placed{}, answer(k, err)
	}
	if it != nil {
		return x.placed(it)
	}
	it = &item{o: o}
	var ok bool
	if it.object, ok = describe(o); !ok {
		err = tier.ErrNotFound
	} else {
		failpoint.Hit("tier.memory.pin")
		err = x.put(it)
	}
	if err != nil {
		x.req.DropID(o.Handle().ID)
		return tier.Placed{}, answer(k, err)
	}
	return x.placed(it)
}

// put records an item, which the request has already.
func (x *lease) put(it *item) error {
	err := x.l.touch(func() (err error) {
		r := leasetable.Item{Serial: x.record.Serial, Reserved: it.res != nil}
		if it.res != nil {
			r.Record = recordOf(it.res.Chunk())
		} else {
			r.Record.ID = it.o.Handle().ID
		}
		it.place, err = x.l.table.PutItem(r)
		return err
	})
	if err != nil {
		return err
	}
	x.add(it)
	return nil
}

// add adds an item that is in the table.
func (x *lease) add(it *item) {
	x.items[it.object.Key] = it
	x.bytes += it.object.Size
	if it.res != nil {
		x.reserved++
	}
}

// remove removes an item that is not in the table any more.
func (x *lease) remove(it *item) {
	delete(x.items, it.object.Key)
	x.bytes -= it.object.Size
	if it.res != nil {
		x.reserved--
	}
}

// placed returns where an item is.
func (x *lease) placed(it *item) (tier.Placed, error) {
	h := it.o.Handle()
	p := tier.Placed{Object: it.object, Offset: offset(h, it.object.Size)}
	if it.res != nil {
		p.Bytes = tail(it.res.Bytes(), it.object.Size)
		return p, nil
	}
	b, err := x.req.Bytes(h)
	if err != nil {
		return tier.Placed{}, answer(it.object.Key, err)
	}
	p.Bytes = tail(b, it.object.Size)
	return p, nil
}

// Held implements tier.Lease.
func (x *lease) Held(keys []tier.Key) []tier.Placed {
	if err := x.enter(); err != nil {
		return failAll(len(keys), err)
	}
	defer x.leave()
	placed := make([]tier.Placed, len(keys))
	for i, k := range keys {
		switch it := x.items[k]; {
		case it == nil:
			placed[i].Err = &objectError{key: k, kind: tier.ErrNotFound, cause: fmt.Errorf("lease %q does not have it", x.id)}
		case it.res != nil:
			placed[i] = tier.Placed{Object: it.object, Offset: offset(it.o.Handle(), it.object.Size), Err: &objectError{key: k, kind: tier.ErrPending}}
		default:
			placed[i], placed[i].Err = x.placed(it)
		}
	}
	return placed
}

// Unpin implements tier.Lease.
func (x *lease) Unpin(keys []tier.Key) {
	for some := range slices.Chunk(keys, atOnce) {
		x.unpinSome(some)
	}
}

func (x *lease) unpinSome(keys []tier.Key) {
	if x.enter() != nil {
		return
	}
	defer x.leave()
	for _, k := range keys {
		if it := x.items[k]; it != nil && it.res == nil {
			_ = x.unpin(it) // the table is away, and so will be the level
		}
	}
}

func (x *lease) unpin(it *item) error {
	if err := x.drop(it); err != nil {
		return err
	}
	failpoint.Hit("tier.memory.unpin")
	x.req.DropID(it.o.Handle().ID)
	return nil
}

// drop removes an item from the table and the lease.
func (x *lease) drop(it *item) error {
	if err := x.l.touch(func() error { x.l.table.DropItem(it.place); return nil }); err != nil {
		return err
	}
	x.remove(it)
	return nil
}

// SetUntil implements tier.Lease.
func (x *lease) SetUntil(until time.Time) error {
	if err := x.enter(); err != nil {
		return err
	}
	defer x.leave()
	if err := x.setUntil(until); err != nil {
		return err
	}
	x.l.expire()
	return nil
}

func (x *lease) setUntil(until time.Time) error {
	r := x.record
	r.Until = leasetable.Nanoseconds(until)
	if err := x.l.touch(func() error { x.place = x.l.table.ReplaceLease(x.place, r); return nil }); err != nil {
		return err
	}
	x.record, x.until, x.lapsed = r, until, false
	x.l.setTime(x)
	return nil
}

// Release implements tier.Lease. After the end of the level it only gives back the memory that Placed.Bytes
// gave access to. What a large lease has goes one after the other, the last ones with the lease itself: a
// process that takes over in between finds the rest.
func (x *lease) Release() {
	for x.shrink() {
	}
	entered := x.l.enter() == nil
	if entered {
		defer x.l.calls.Done()
	}
	x.l.mu.Lock()
	defer x.l.mu.Unlock()
	if x.ended {
		return
	}
	if x.l.ended {
		x.letGo()
	} else if entered {
		_ = x.end() // if the table is away, it stays
	}
}

// shrink lets some of what a large lease has go. It reports whether it did.
func (x *lease) shrink() bool {
	if x.enter() != nil {
		return false
	}
	defer x.leave()
	if len(x.items) <= atOnce {
		return false
	}
	n := 0
	for _, it := range x.items {
		letGo := x.unpin
		if it.res != nil {
			letGo = x.abort
		}
		if letGo(it) != nil {
			return false
		}
		if n++; n == atOnce {
			break
		}
	}
	return true
}

// end ends a lease: in one step for the next process.
func (x *lease) end() error {
	if err := x.l.touch(func() error { x.l.table.DropLease(x.place); return nil }); err != nil {
		return err
	}
	failpoint.Hit("tier.memory.release")
	delete(x.l.leases, x.id)
	x.until = time.Time{}
	x.l.setTime(x)
	_ = x.l.touch(func() error {
		for _, it := range x.items {
			x.l.table.DropItem(it.place)
		}
		return nil
	})
	x.letGo()
	return nil
}

// letGo ends everything that the lease has in the store.
func (x *lease) letGo() {
	for _, it := range x.items {
		if it.res != nil {
			it.res.Discard()
		}
	}
	x.req.Rollback()
	x.ended, x.items, x.reserved, x.bytes = true, nil, 0, 0
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
	for k, it := range x.items {
		if it.res != nil {
			s.Reserved = append(s.Reserved, k)
		} else {
			s.Pinned = append(s.Pinned, k)
		}
	}
	order := func(a, b tier.Key) int { return cmp.Or(cmp.Compare(a.Space, b.Space), cmp.Compare(a.Name, b.Name)) }
	slices.SortFunc(s.Pinned, order)
	slices.SortFunc(s.Reserved, order)
	return s
}
