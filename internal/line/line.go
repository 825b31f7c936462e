package objstore

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ringcache/ringcache/serde"
)

// noWait is the context of calls that take ErrFull for an answer.
var noWait context.Context

// line is those who wait for room, or for the quota of a tenant, in the order in
// which they came. Only the first one tries; it is woken when what it needs may be
// there, and whoever leaves the front wakes the next.
//
// Callers that do not wait may pass those who do: else one that waits for much, or
// for what never comes, would keep everyone out. But when they have taken as many
// bytes as there are in all since the first one came to the front, as many are
// refused, which gives the room time to drain for it; and so on in turns.
type line struct {
	waiting         list.List // of *waiter
	passed, refused int64     // bytes in this turn
}

// waiter is one who waits.
type waiter struct {
	need   int64 // bytes of the chunk
	tenant string
	key    string
	wake   chan struct{} // of one
	line   *line         // nil: not in one
	place  *list.Element
}

// turn says by which right someone tries to get room.
type turn uint8

const (
	passing turn = iota // has not waited
	first               // is the first of a line
	polling             // is it, and comes by the timer

	// ofTenant is added to first and polling: the line is that of a quota, so those
	// who wait for room are passed.
	ofTenant turn = 1 << 7
)

// passes says whether someone passes those who wait for room.
func (t turn) passes() bool { return t == passing || t&ofTenant != 0 }

func (l *line) first() *waiter {
	if e := l.waiting.Front(); e != nil {
		return e.Value.(*waiter)
	}
	return nil
}

// wanted returns the bytes that the first one waits for.
func (l *line) wanted() int64 {
	if f := l.first(); f != nil {
		return f.need
	}
	return 0
}

// mayPass says whether someone who has not waited may try to get n bytes of a room
// of so many.
func (l *line) mayPass(n, room int64) bool {
	if l.waiting.Len() == 0 || l.passed < room {
		return true
	}
	if l.refused += n; l.refused >= room {
		l.passed, l.refused = 0, 0
	}
	return false
}

// hasPassed counts n bytes that someone who has not waited got.
func (l *line) hasPassed(n int64) {
	if l.waiting.Len() > 0 {
		l.passed += n
	}
}

func (w *Writer) rouse(wt *waiter) {
	select {
	case wt.wake <- struct{}{}:
		w.woken++
	default: // it is on its way
	}
}

// wakeFirst wakes the first of a line, if what it waits for may be there.
func (w *Writer) wakeFirst(l *line) {
	if f := l.first(); f != nil && w.life.mayFit(f) {
		w.rouse(f)
	}
}

// wakeAll wakes everyone who waits, to look again.
func (w *Writer) wakeAll() {
	for wt := range w.waiters {
		w.rouse(wt)
	}
	for _, o := range w.pending {
		o.wakeObtain()
	}
}

// wakeKey wakes those who wait for room for a key that is there now.
func (w *Writer) wakeKey(key string) {
	for wt := range w.waitersOf[key] {
		w.rouse(wt)
	}
}

// enter puts a waiter at the end of a line, if it is not in it.
func (w *Writer) enter(wt *waiter, l *line) {
	if wt.line == l {
		return
	}
	w.leave(wt)
	wt.line = l
	wt.place = l.waiting.PushBack(wt)
}

// leave takes a waiter out of its line. The next one looks whether there is room,
// which this one may have been woken for.
func (w *Writer) leave(wt *waiter) {
	l := wt.line
	if l == nil {
		return
	}
	front := l.first() == wt
	l.waiting.Remove(wt.place)
	wt.line, wt.place = nil, nil
	if front {
		l.passed, l.refused = 0, 0
		if f := l.first(); f != nil {
			w.rouse(f)
		}
	}
	if p, ok := w.life.(*pool); ok {
		p.forgetTenant(wt.tenant)
	}
}

// pollReads is how often the first of a line looks at the readers' counts, of which
// nobody is told.
const pollReads, maxPollReads = 5 * time.Millisecond, 80 * time.Millisecond

// await waits for room after err, an ErrFull, until try returns something else or
// ctx ends. It is called under the lock, which it gives away while it waits. check
// says whether there is anything left to wait for.
func (w *Writer) await(ctx context.Context, wt *waiter, r *Request, err error, try func(turn) error, check func() error) error {
	wt.wake = make(chan struct{}, 1)
	w.waiters[wt] = struct{}{}
	if w.waitersOf[wt.key] == nil {
		w.waitersOf[wt.key] = map[*waiter]struct{}{}
	}
	w.waitersOf[wt.key][wt] = struct{}{}
	if r != nil {
		if r.waiters == nil {
			r.waiters = map[*waiter]struct{}{}
		}
		r.waiters[wt] = struct{}{}
	}
	defer func() {
		w.leave(wt)
		delete(w.waiters, wt)
		if delete(w.waitersOf[wt.key], wt); len(w.waitersOf[wt.key]) == 0 {
			delete(w.waitersOf, wt.key)
		}
		if r != nil {
			delete(r.waiters, wt)
		}
	}()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for poll := pollReads; ; {
		w.enter(wt, w.life.lineOf(err, wt.tenant))
		as := first
		if wt.line.first() == wt {
			timer.Reset(poll)
		} else {
			timer.Stop()
		}
		w.mu.Unlock()
		select {
		case <-wt.wake:
		case <-timer.C:
			as = polling
			poll = min(2*poll, maxPollReads)
		case <-ctx.Done():
		}
		w.mu.Lock()
		if ctx.Err() != nil {
			return fmt.Errorf("%w, while waiting: %w", ctx.Err(), err)
		}
		if e := check(); e != nil {
			return e
		}
		if wt.line.first() != wt {
			continue
		}
		if as == polling {
			w.polls++
		}
		if wt.line != &w.line {
			as |= ofTenant
		}
		if err = try(as); !errors.Is(err, ErrFull) {
			return err
		}
	}
}

// PutContext is Put that waits for room until ctx ends; its error is then both
// ctx's and a [FullError] or [QuotaError].
//
// Those who wait get room in the order in which they came. A Put that does not wait
// may take what they wait for, within limits: after a room full of bytes, as many
// are refused with FullError.Waiting, in turns. So who waits for much gets it once the
// requests that are open then have ended. Uses of objects that are there are
// never refused: an object that is leased without a pause stays where it is.
func (w *Writer) PutContext(ctx context.Context, key string, v serde.Value, o PutOptions) (Handle, error) {
	return w.putContext(ctx, key, v, o)
}

// ReserveContext is ReserveWith that waits for room as [Writer.PutContext] does.
func (w *Writer) ReserveContext(ctx context.Context, key string, v serde.Value, o PutOptions) (*Reservation, error) {
	plan, err := w.plan(key, v)
	if err != nil {
		return nil, err
	}
	return w.reserve(ctx, key, plan, o)
}

// Obtain returns a lease of the object under a key if it is there; a reservation
// if it is not, which the caller fills and commits for everyone; and while someone
// else has the reservation it waits, until ctx ends. So one caller produces, and
// the others get what it made, or take its place if it gave up. Exactly one of
// lease and reservation is not nil when err is.
func (w *Writer) Obtain(ctx context.Context, key string, layout serde.Value, o PutOptions) (*Lease, *Reservation, error) {
	for {
		l, err := w.Lease(key)
		if err == nil || !errors.Is(err, ErrNotFound) {
			return l, nil, err
		}
		r, err := w.ReserveWith(key, layout, o)
		if !errors.Is(err, ErrKeyExists) {
			return nil, r, err
		}
		select {
		case <-w.ended(key):
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("%w, while waiting: %w", ctx.Err(), err)
		}
	}
}

// wakeObtain wakes those who wait for the end of a reservation, to look again.
func (o *object) wakeObtain() {
	if o.ended != nil {
		close(o.ended)
		o.ended = nil
	}
}

// ended is closed when the reservation of a key has ended; at once if there is none.
func (w *Writer) ended(key string) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.pending[key]
	if o == nil || w.closed || w.stopping { // then nobody is woken any more, and Obtain fails
		c := make(chan struct{})
		close(c)
		return c
	}
	if o.ended == nil {
		o.ended = make(chan struct{})
	}
	return o.ended
}
