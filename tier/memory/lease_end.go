package memory

import (
	"time"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/leasetable"
)

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

// Expire implements tier.Lease. A lease without a time gets one in the table, by which the next process ends it.
// Another keeps its own: the client was told that it may write until then.
func (x *lease) Expire() {
	if x.enter() != nil {
		return
	}
	defer x.leave()
	if x.expired {
		return
	}
	now := x.l.now()
	if r := x.record; r.Until == 0 {
		r.Until = leasetable.Nanoseconds(now)
		// If the table is away, so is the level.
		if x.l.touch(func() error { x.place = x.l.table.ReplaceLease(x.place, r); return nil }) == nil {
			x.record = r
		}
	}
	x.expire(now)
	x.l.startSweep()
}

// Release implements tier.Lease. After the end of the level it only gives back the memory that Placed.Bytes
// gave access to.
func (x *lease) Release() { x.release(false) }

// ReleaseSome implements tier.Lease.
func (x *lease) ReleaseSome() (more bool) { return x.release(true) }

// release ends a lease or, of a large one, gives a slice up if that is enough for the caller. It reports
// whether there is more.
func (x *lease) release(some bool) (more bool) {
	entered := x.l.enter() == nil
	if entered {
		defer x.l.calls.Done()
	}
	x.l.mu.Lock()
	defer x.l.mu.Unlock()
	switch {
	case x.isDone():
		return false
	case x.l.ended:
		x.endInStore()
		return false
	case x.ended || !entered:
		return false
	case some && x.size() > slice && x.giveUp(slice, true) > 0:
		return true
	case x.end() != nil: // if the table is away, it stays
		return false
	}
	for !x.sweep(slice) { // others come between the slices
		x.l.mu.Unlock()
		x.l.mu.Lock()
	}
	return false
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
	items := make([]*item, 0, n)
	for it := range x.all() {
		if len(items) == n || it.res != nil && !reservations {
			break
		}
		items = append(items, it)
	}
	before := x.size()
	_ = x.drop(items)
	return before - x.size()
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
