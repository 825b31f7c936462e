package memory

import (
	"container/heap"
	"errors"
	"time"

	"github.com/ringcache/ringcache/internal/leasetable"
)

// cautionTime is how long nothing is believed to be free after the table of leases was damaged: no client takes longer for
// anything.
const cautionTime = 10 * time.Minute

var errCautious = errors.New("the table of leases was damaged, so nothing is stored until clients of the process before can't be writing any more: ten minutes")

// timed are the leases that end by time, the first one in front.
type timed []*lease

func (t timed) Len() int           { return len(t) }
func (t timed) Less(i, j int) bool { return t[i].record.Until < t[j].record.Until }
func (t timed) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].timedAt, t[j].timedAt = i, j
}
func (t *timed) Push(x any) {
	x.(*lease).timedAt = len(*t)
	*t = append(*t, x.(*lease))
}
func (t *timed) Pop() any {
	x := (*t)[len(*t)-1]
	x.timedAt = -1
	(*t)[len(*t)-1] = nil
	*t = (*t)[:len(*t)-1]
	return x
}

// setTime files a lease by its Until, unless it has lapsed already.
func (l *Level) setTime(x *lease) {
	if x.timedAt >= 0 {
		heap.Remove(&l.timed, x.timedAt)
	}
	if !x.until.IsZero() && !x.lapsed {
		heap.Push(&l.timed, x)
	}
	l.setNext()
}

// setNext sets when a call has to look what ends by time.
func (l *Level) setNext() {
	next := int64(never)
	if len(l.timed) > 0 {
		next = l.timed[0].record.Until
	}
	if !l.caution.IsZero() {
		next = min(next, leasetable.Nanoseconds(l.caution))
	}
	l.next.Store(next)
}

// expire ends what ends by time.
func (l *Level) expire() {
	now := l.now()
	if !l.caution.IsZero() && !now.Before(l.caution) {
		l.setCaution(time.Time{})
		l.fence.Passed()
	}
	for len(l.timed) > 0 && now.UnixNano() >= l.timed[0].record.Until {
		x := l.timed[0]
		x.lapsed = true
		l.setTime(x)
		l.lapse(x)
	}
}

// lapse takes the pins from a lease whose time has passed, and ends it if it has no reservation.
func (l *Level) lapse(x *lease) {
	if x.reserved == 0 {
		_ = x.end() // if the table is away, so is the level
		return
	}
	for _, it := range x.items {
		if it.res == nil {
			_ = x.unpin(it)
		}
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
