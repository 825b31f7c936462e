package memory

import (
	"container/heap"
	"errors"
	"time"

	"github.com/ringcache/ringcache/internal/leasetable"
	"github.com/ringcache/ringcache/tier"
)

// A lease waits in one of two schedules: for the time at which its pins end, by the clock on the wall,
// which the table has and which is the same for the next process; or, once that has passed, for the time
// at which its reservations end, by the monotonic clock. Each call looks whether the first lease of one
// is due.

// cautionTime is how long nothing is believed to be free after the table of leases was damaged.
const cautionTime = tier.WriteTime

var errCautious = errors.New("the table of leases was damaged, so nothing is stored until clients of the process before can't be writing any more: ten minutes")

// schedule has leases by the times at which something of them ends, the first one in front.
type schedule []*lease

func (t schedule) Len() int           { return len(t) }
func (t schedule) Less(i, j int) bool { return t[i].due < t[j].due }
func (t schedule) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].at, t[j].at = i, j
}
func (t *schedule) Push(x any) {
	x.(*lease).at = len(*t)
	*t = append(*t, x.(*lease))
}
func (t *schedule) Pop() any {
	x := (*t)[len(*t)-1]
	(*t)[len(*t)-1] = nil
	*t = (*t)[:len(*t)-1]
	return x
}

// first returns the time of the first lease.
func (t schedule) first() int64 {
	if len(t) == 0 {
		return never
	}
	return t[0].due
}

// wait lets a lease wait in a schedule for a time, or in none.
func (x *lease) wait(in *schedule, due int64) {
	if x.in != nil {
		heap.Remove(x.in, x.at)
	}
	if x.in, x.due = in, due; in != nil {
		heap.Push(in, x)
	}
	x.l.setNext()
}

// waitForUntil lets a lease wait for the end of its pins.
func (x *lease) waitForUntil() {
	if x.until.IsZero() {
		x.wait(nil, 0)
		return
	}
	x.wait(&x.l.untils, x.record.Until)
}

// setNext sets when a call has to look what ends by time.
func (l *Level) setNext() {
	next := l.untils.first()
	if !l.caution.IsZero() {
		next = min(next, leasetable.Nanoseconds(l.caution))
	}
	l.next.Store(next)
	l.nextWrite.Store(l.writes.first())
}

// elapsed is a time by the clock that nobody sets.
func (l *Level) elapsed(now time.Time) int64 { return int64(now.Sub(l.begun)) }

// isDue reports whether something ends by time.
func (l *Level) isDue() bool {
	now := l.now()
	return now.UnixNano() >= l.next.Load() || l.elapsed(now) >= l.nextWrite.Load()
}

// expire ends what ends by now. The caller has the lock.
func (l *Level) expire() {
	now := l.now()
	if !l.caution.IsZero() && !now.Before(l.caution) {
		l.setCaution(time.Time{})
		l.fence.Passed()
	}
	for l.untils.first() <= now.UnixNano() {
		l.untils[0].expire(now)
	}
	for l.writes.first() <= l.elapsed(now) {
		l.writes[0].endByTime()
	}
	l.startSweep()
}

// expire takes its pins from a lease, and ends it if it has no reservations. Those stay for tier.WriteTime
// from now, or from the time that the client was told if that is later: the client may write until then, even
// if nobody came back for the lease, or the clock on the wall was set.
func (x *lease) expire(now time.Time) {
	x.expired = true
	if len(x.reserved) == 0 {
		x.endByTime()
		return
	}
	if x.until.After(now) {
		now = x.until
	}
	x.wait(&x.l.writes, x.l.elapsed(now.Add(tier.WriteTime)))
	x.l.queueSweep(x)
}

// endByTime ends a lease of which nothing may stay.
func (x *lease) endByTime() {
	if x.end() != nil { // the table is away, and so is the level
		x.wait(nil, 0)
		return
	}
	if x.account != nil {
		x.account.Expired()
	}
	x.l.queueSweep(x)
}

// queueSweep has a lease let go of what it must not have any more.
func (l *Level) queueSweep(x *lease) {
	if !x.inSweeps {
		x.inSweeps = true
		l.sweeps = append(l.sweeps, x)
	}
}

// startSweep lets go of a slice of what leases must not have any more. A goroutine does the rest, so
// that no call waits for it.
func (l *Level) startSweep() {
	l.sweepSlice()
	if len(l.sweeps) > 0 && !l.sweeperRuns {
		l.sweeperRuns = true
		l.calls.Add(1)
		go l.sweepRest()
	}
}

// sweepSlice lets go of a slice, of one large lease or several small ones.
func (l *Level) sweepSlice() {
	for n := slice; n > 0 && len(l.sweeps) > 0; {
		x := l.sweeps[0]
		before := x.size()
		done := x.sweep(n)
		n -= max(1, before-x.size())
		if done {
			x.inSweeps = false
			l.sweeps[0] = nil
			l.sweeps = l.sweeps[1:]
		}
	}
}

// sweepRest lets go of everything that leases must not have any more, in slices. At the end of the level
// it stops: the next process does the rest.
func (l *Level) sweepRest() {
	defer l.calls.Done()
	for more := true; more; {
		l.gate.Lock()
		closed := l.closed
		l.gate.Unlock()
		l.mu.Lock()
		if !closed {
			l.sweepSlice()
		}
		more = !closed && len(l.sweeps) > 0
		l.sweeperRuns = more
		l.mu.Unlock()
	}
}

// setCaution sets until when nothing may be believed to be free.
func (l *Level) setCaution(until time.Time) {
	l.caution = until
	l.noRoom.Store(!until.IsZero())
	l.setNext()
}

// cautious reports whether nothing may be stored.
func (l *Level) cautious() bool { return l.noRoom.Load() }
