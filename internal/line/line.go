// Package line has the lines of callers that wait for room in a store.
//
// In a [Line] callers stand in the order in which they came. Only the first one
// tries; it is woken when what it needs may be there, and whoever leaves the front
// wakes the next.
//
// Callers that do not wait may pass those who do: else one that waits for much, or
// for what never comes, would keep everyone out. But when they have taken as many
// bytes as there are in all since the first one came to the front, as many are
// refused, which gives the room time to drain for it. Then callers may pass again, and so on.
//
// Everything is guarded by the lock of the store.
//
// See docs/decisions.md, "Waiting for room is a line, and some may pass".
package line

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"
)

// Line is those who wait for room, or for the quota of a tenant. The zero value is
// an empty line.
type Line struct {
	waiting         list.List // of *Waiter
	passed, refused int64     // bytes since passing or refusing began anew
}

// Waiter is one who waits.
type Waiter struct {
	Need        int64 // bytes of the chunk
	Tenant, Key string

	wake  chan struct{} // of one
	line  *Line         // nil: not in one
	place *list.Element
}

// Line returns the line in which a waiter stands.
func (w *Waiter) Line() *Line { return w.line }

// Role is in which role a caller tries to get room.
type Role uint8

const (
	Passing Role = iota // has not waited
	First               // is the first of a line
	Polling             // is the first of a line, and comes by the timer

	// OfTenant is added to First and Polling: the line is that of a quota, so those
	// who wait for room are passed.
	OfTenant Role = 1 << 7
)

// Passes reports whether someone passes those who wait for room.
func (r Role) Passes() bool { return r == Passing || r&OfTenant != 0 }

// First returns the first waiter, nil if there is none.
func (l *Line) First() *Waiter {
	if e := l.waiting.Front(); e != nil {
		return e.Value.(*Waiter)
	}
	return nil
}

// Empty reports whether nobody waits.
func (l *Line) Empty() bool { return l.waiting.Len() == 0 }

// Wanted returns the bytes that the first one waits for.
func (l *Line) Wanted() int64 {
	if f := l.First(); f != nil {
		return f.Need
	}
	return 0
}

// MayPass reports whether someone who has not waited may try to get n bytes of a
// room of so many.
func (l *Line) MayPass(n, room int64) bool {
	if l.Empty() || l.passed < room {
		return true
	}
	if l.refused += n; l.refused >= room {
		l.passed, l.refused = 0, 0
	}
	return false
}

// Passed counts n bytes that someone who has not waited got.
func (l *Line) Passed(n int64) {
	if !l.Empty() {
		l.passed += n
	}
}

// Waiters is everyone who waits in the lines of one store.
type Waiters struct {
	// Main is the line of those who wait for room.
	Main Line
	// Left, if not nil, is called for each waiter that leaves a line.
	Left func(*Waiter)

	// Woken and Polls count work for tests: waiters that were woken, and tries of
	// waiters that came by the timer.
	Woken, Polls int

	all   map[*Waiter]struct{}
	ofKey map[string]map[*Waiter]struct{}
}

// Len returns the number of waiters.
func (a *Waiters) Len() int { return len(a.all) }

// Wake wakes a waiter.
func (a *Waiters) Wake(w *Waiter) {
	select {
	case w.wake <- struct{}{}:
		a.Woken++
	default: // it is on its way
	}
}

// WakeAll wakes everyone, to look again.
func (a *Waiters) WakeAll() {
	for w := range a.all {
		a.Wake(w)
	}
}

// WakeKey wakes those who wait for room for a key that is there now.
func (a *Waiters) WakeKey(key string) {
	for w := range a.ofKey[key] {
		a.Wake(w)
	}
}

// enter puts a waiter at the end of a line, if it is not in it.
func (a *Waiters) enter(w *Waiter, l *Line) {
	if w.line == l {
		return
	}
	a.leave(w)
	w.line = l
	w.place = l.waiting.PushBack(w)
}

// leave takes a waiter out of its line. The next one looks whether there is room,
// which this one may have been woken for.
func (a *Waiters) leave(w *Waiter) {
	l := w.line
	if l == nil {
		return
	}
	front := l.First() == w
	l.waiting.Remove(w.place)
	w.line, w.place = nil, nil
	if front {
		l.passed, l.refused = 0, 0
		if f := l.First(); f != nil {
			a.Wake(f)
		}
	}
	if a.Left != nil {
		a.Left(w)
	}
}

// minPoll and maxPoll bound how often the first of a line looks by itself, since
// readers count without waking anyone.
const minPoll, maxPoll = 5 * time.Millisecond, 80 * time.Millisecond

// Attempt is how a waiter tries to get what it waits for.
type Attempt struct {
	// Line returns the line in which to wait after an error of Try.
	Line func(error) *Line
	// Try gets room. Retry reports whether its error is one to wait after.
	Try   func(Role) error
	Retry func(error) bool
	// Check returns why there is nothing left to wait for, if so.
	Check func() error
}

// Wait waits for room after err, until Try succeeds, or fails with an error that is
// none to wait after, or ctx ends. It is called under the lock, which it gives away
// while it waits.
func (a *Waiters) Wait(ctx context.Context, lock sync.Locker, w *Waiter, err error, t Attempt) error {
	a.add(w)
	defer a.remove(w)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for poll := minPoll; ; {
		a.enter(w, t.Line(err))
		as := First
		if w.line.First() == w {
			timer.Reset(poll)
		} else {
			timer.Stop()
		}
		lock.Unlock()
		select {
		case <-w.wake:
		case <-timer.C:
			as = Polling
			poll = min(2*poll, maxPoll)
		case <-ctx.Done():
		}
		lock.Lock()
		if ctx.Err() != nil {
			return fmt.Errorf("%w, while waiting: %w", ctx.Err(), err)
		}
		if e := t.Check(); e != nil {
			return e
		}
		if w.line.First() != w {
			continue
		}
		if as == Polling {
			a.Polls++
		}
		if w.line != &a.Main {
			as |= OfTenant
		}
		if err = t.Try(as); !t.Retry(err) {
			return err
		}
	}
}

func (a *Waiters) add(w *Waiter) {
	w.wake = make(chan struct{}, 1)
	if a.all == nil {
		a.all, a.ofKey = map[*Waiter]struct{}{}, map[string]map[*Waiter]struct{}{}
	}
	a.all[w] = struct{}{}
	if a.ofKey[w.Key] == nil {
		a.ofKey[w.Key] = map[*Waiter]struct{}{}
	}
	a.ofKey[w.Key][w] = struct{}{}
}

func (a *Waiters) remove(w *Waiter) {
	a.leave(w)
	delete(a.all, w)
	if delete(a.ofKey[w.Key], w); len(a.ofKey[w.Key]) == 0 {
		delete(a.ofKey, w.Key)
	}
}

// Check verifies that everyone who waits is in one of the lines given, and reports
// each violation.
func (a *Waiters) Check(lines []*Line, bad func(format string, args ...any)) {
	n := 0
	for _, l := range lines {
		for e := l.waiting.Front(); e != nil; e = e.Next() {
			n++
			w := e.Value.(*Waiter)
			if _, ok := a.all[w]; !ok || w.line != l || w.place != e {
				bad("the waiter for %d bytes for key %q is not in its place", w.Need, w.Key)
			}
		}
		if l.Empty() && (l.passed != 0 || l.refused != 0) {
			bad("%d bytes have passed nobody, %d were refused", l.passed, l.refused)
		}
	}
	ofKeys := 0
	for _, of := range a.ofKey {
		ofKeys += len(of)
	}
	if n != len(a.all) || n != ofKeys {
		bad("%d callers wait in lines, %d in all, %d for keys", n, len(a.all), ofKeys)
	}
}
