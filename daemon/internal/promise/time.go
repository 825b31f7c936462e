package promise

import (
	"container/heap"
	"time"
)

// lookAgain is the longest time between two looks at the clock, which somebody may set.
const lookAgain = 5 * time.Second

// due are leases that end by time, or something of them, the first one in front. Guarded by the lock of the
// book, with the times in it.
type due []dueLease

type dueLease struct {
	l  *lease
	at time.Time
}

func (d due) Len() int           { return len(d) }
func (d due) Less(i, j int) bool { return d[i].at.Before(d[j].at) }
func (d due) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].l.at, d[j].l.at = i, j
}
func (d *due) Push(x any) {
	l := x.(dueLease).l
	l.in, l.at = d, len(*d)
	*d = append(*d, x.(dueLease))
}
func (d *due) Pop() any {
	n := len(*d) - 1
	x := (*d)[n]
	x.l.in = nil
	(*d)[n] = dueLease{}
	*d = (*d)[:n]
	return x
}

// file files a lease by a time; in is nil for one that does not end by time. The caller has the lock of the book.
func (b *Book) file(l *lease, in *due, at time.Time) {
	if l.in != nil {
		heap.Remove(l.in, l.at)
	}
	if in != nil {
		heap.Push(in, dueLease{l, at})
		if l.at == 0 {
			b.Look()
		}
	}
}

// upTo takes the leases out whose time is not after now.
func (d *due) upTo(now time.Time) (all []*lease) {
	for len(*d) > 0 && !now.Before((*d)[0].at) {
		all = append(all, heap.Pop(d).(dueLease).l)
	}
	return all
}

// Look ends what ends by now, soon: something sets the clock, or what comes next has changed.
func (b *Book) Look() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// keepTime ends what ends by time, until Close.
func (b *Book) keepTime() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-b.stop:
			return
		case <-b.wake:
		case <-timer.C:
		}
		timer.Reset(b.pass())
	}
}

// pass ends what ends by now, and returns how long nothing will.
func (b *Book) pass() time.Duration {
	clock := b.clock()
	now := clock.Round(0)
	b.mu.Lock()
	lapsing, ending := b.due.upTo(now), b.writing.upTo(clock)
	b.mu.Unlock()
	ended := 0
	for _, l := range lapsing {
		ended += l.s.lapse(l, now)
	}
	for _, l := range ending {
		ended += l.s.expire(l)
	}
	for _, s := range b.lonely() {
		ended += s.abandon()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counts.EndedByTime += uint64(ended)
	wait := lookAgain
	if len(b.due) > 0 {
		wait = min(wait, b.due[0].at.Sub(now))
	}
	if len(b.writing) > 0 {
		wait = min(wait, b.writing[0].at.Sub(clock))
	}
	for _, at := range b.deserted {
		wait = min(wait, at.Sub(now))
	}
	return max(wait, time.Millisecond)
}

// lonely returns the sessions for which nobody has come in time. Somebody may come before they are abandoned.
func (b *Book) lonely() (alone []*session) {
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	for s, at := range b.deserted {
		if !now.Before(at) {
			alone = append(alone, s)
		}
	}
	return alone
}

// lapse ends a lease of which the time has passed, if it still has. It returns how many ended.
func (s *session) lapse(l *lease, now time.Time) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.leases[l.name] != l || l.lapsed {
		return 0
	}
	if now.Before(l.until) { // it was extended meanwhile
		s.book.mu.Lock()
		defer s.book.mu.Unlock()
		s.book.file(l, &s.book.due, l.until.Round(0))
		return 0
	}
	n := l.lapse()
	s.settle()
	return n
}

// expire ends a lease whose reservations have stayed for long enough after its time, if nobody has extended
// it meanwhile. It returns how many ended.
func (s *session) expire(l *lease) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.leases[l.name] != l || !l.lapsed || l.isFiled() {
		return 0
	}
	l.release()
	s.settle()
	return 1
}

func (l *lease) isFiled() bool {
	l.s.book.mu.Lock()
	defer l.s.book.mu.Unlock()
	return l.in != nil
}
