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

	"github.com/ringcache/ringcache/internal/failpoint"
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
	record      leasetable.Lease // as it is in the table
	place       int              // of the record
	until       time.Time        // as the caller said, with its monotonic reading
	in          *schedule        // where it waits for its time, nil if it does not
	due         int64            // its time there
	at          int              // its place there
	req         *shmstore.Request
	pinned      map[tier.Key]*item
	reserved    map[tier.Key]*item
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
	return &lease{l: l, id: id, owner: owner, pinned: map[tier.Key]*item{}, reserved: map[tier.Key]*item{}}
}

// find returns what the lease has of an object, nil if it does not have it.
func (x *lease) find(k tier.Key) *item {
	if it := x.pinned[k]; it != nil {
		return it
	}
	return x.reserved[k]
}

// all lists what the lease has.
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
	l.expire()
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
		return x, nil
	}
	req, err := l.store.Begin(shmstore.RequestOptions{ID: leasePrefix + o.ID})
	if err != nil {
		return nil, err
	}
	x := l.newLease(o.ID, o.Owner)
	x.account, x.until, x.req = o.Account, o.Until, req
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

// slice is how many objects are pinned or let go at most while others wait for the lock of the level:
// some 0.1 ms.
const slice = 64

// Pin implements tier.Lease.
func (x *lease) Pin(keys []tier.Key) []tier.Placed { return x.pinAll(keys, false) }

// PinPrefix implements tier.Lease.
func (x *lease) PinPrefix(keys []tier.Key) []tier.Placed { return x.pinAll(keys, true) }

func (x *lease) pinAll(keys []tier.Key, prefix bool) []tier.Placed {
	placed := make([]tier.Placed, 0, len(keys))
	for some := range slices.Chunk(keys, slice) {
		placed = x.pinSome(placed, some, prefix)
		if prefix && placed[len(placed)-1].Err != nil {
			break
		}
	}
	return placed
}

func (x *lease) pinSome(placed []tier.Placed, keys []tier.Key, prefix bool) []tier.Placed {
	err := x.enter()
	if err == nil {
		defer x.leave()
		if x.expired {
			err = x.endedError("its time has passed")
		}
	}
	for _, k := range keys {
		p := tier.Placed{Err: err}
		if err == nil {
			p, p.Err = x.pin(k)
		}
		placed = append(placed, p)
		if prefix && p.Err != nil {
			break
		}
	}
	return placed
}

func (x *lease) pin(k tier.Key) (tier.Placed, error) {
	if err := k.Validate(); err != nil {
		return tier.Placed{}, err
	}
	if x.reserved[k] != nil {
		return tier.Placed{}, &objectError{key: k, kind: tier.ErrPending}
	}
	o, err := x.req.Lookup(keyText(k), 0)
	if err != nil {
		return tier.Placed{}, answer(k, err)
	}
	if it := x.pinned[k]; it != nil {
		return x.placed(it)
	}
	it := &item{o: o}
	var ok bool
	if it.object, ok = describe(o); !ok {
		err = &objectError{key: k, kind: tier.ErrNotFound}
	} else if err = x.charge(it, false); err == nil {
		failpoint.Hit("tier.memory.pin")
		if err = x.put(it); err != nil {
			x.credit(it)
			err = answer(k, err)
		}
	}
	if err != nil {
		x.req.DropID(o.Handle().ID)
		return tier.Placed{}, err
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
	if it.res != nil {
		x.reserved[it.object.Key] = it
	} else {
		x.pinned[it.object.Key] = it
	}
	x.bytes += it.object.Size
}

// remove removes an item that is not in the table any more.
func (x *lease) remove(it *item) {
	delete(x.pinned, it.object.Key)
	delete(x.reserved, it.object.Key)
	x.bytes -= it.object.Size
	x.credit(it)
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
		switch it := x.find(k); {
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
	for some := range slices.Chunk(keys, slice) {
		x.unpinSome(some)
	}
}

func (x *lease) unpinSome(keys []tier.Key) {
	if x.enter() != nil {
		return
	}
	defer x.leave()
	for _, k := range keys {
		if it := x.pinned[k]; it != nil {
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
	x.record, x.until, x.expired = r, until, false
	x.waitForUntil()
	return nil
}

// Expire implements tier.Lease.
func (x *lease) Expire() {
	if x.enter() != nil {
		return
	}
	defer x.leave()
	if !x.expired {
		x.expire(x.l.now())
		x.l.startSweep()
	}
}

// Shrink implements tier.Lease. At most a slice goes, and none of the last one, which goes with the lease.
func (x *lease) Shrink() bool {
	if x.enter() != nil {
		return false
	}
	defer x.leave()
	if x.size() <= slice {
		return false
	}
	return x.giveUp(slice, true) > 0
}

// Release implements tier.Lease. After the end of the level it only gives back the memory that Placed.Bytes
// gave access to.
func (x *lease) Release() {
	entered := x.l.enter() == nil
	if entered {
		defer x.l.calls.Done()
	}
	x.l.mu.Lock()
	defer x.l.mu.Unlock()
	switch {
	case x.isDone():
		return
	case x.l.ended:
		x.endInStore()
		return
	case x.ended || !entered || x.end() != nil: // if the table is away, it stays
		return
	}
	for !x.sweep(slice) { // others come between the slices
		x.l.mu.Unlock()
		x.l.mu.Lock()
	}
}

// end ends a lease, in one step for the next process. What it has is still to be let go of.
func (x *lease) end() error {
	if err := x.l.touch(func() error { x.l.table.DropLease(x.place); return nil }); err != nil {
		return err
	}
	x.ended = true
	x.wait(nil, 0)
	failpoint.Hit("tier.memory.release")
	return nil
}

// giveUp gives up to n objects up, pins first, and reservations if they are to go, too. It returns how
// many it gave up: less than n if there are no more, or the table is away.
func (x *lease) giveUp(n int, reservations bool) (done int) {
	for _, it := range x.pinned {
		if done == n || x.unpin(it) != nil {
			return done
		}
		done++
	}
	if !reservations {
		return done
	}
	for _, it := range x.reserved {
		if done == n || x.abort(it) != nil {
			return done
		}
		done++
	}
	return done
}

// sweep lets go of up to n objects that the lease must not have any more: pins of one that has expired,
// and everything of one that has ended. It reports whether it is done.
func (x *lease) sweep(n int) bool {
	switch {
	case x.isDone(), !x.expired && !x.ended: // somebody else has let go of the rest, or SetUntil came between two slices
		return true
	case !x.ended:
		return x.giveUp(n, false) < n
	case x.size() > n && x.giveUp(n, true) > 0:
		return false
	}
	_ = x.l.touch(func() error { // if the table is away, so is the level
		for it := range x.all() {
			x.l.table.DropItem(it.place)
		}
		return nil
	})
	x.endInStore()
	delete(x.l.leases, x.id)
	return true
}

// endInStore ends everything that the lease has in the store.
func (x *lease) endInStore() {
	for it := range x.all() {
		if it.res != nil {
			it.res.Discard()
		}
		x.credit(it)
	}
	x.req.Rollback()
	x.ended, x.pinned, x.reserved, x.bytes = true, nil, nil, 0
}

func (x *lease) isDone() bool { return x.pinned == nil }

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
