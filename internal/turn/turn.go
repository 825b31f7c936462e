// Package turn is a lock whose waiters can give up, and which notices when its
// holder asks for it again.
package turn

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
)

// ErrHeld reports that the caller runs inside of the function that has the turn, so
// that the wait would never end.
var ErrHeld = errors.New("called from within the function that has the turn")

// ErrStopped reports that stop was closed before the caller had its turn.
var ErrStopped = errors.New("the wait for the turn was stopped")

// Lock gives one function at a time its turn, in the order in which they asked. The
// zero value is a lock that nobody has. A turn that is free is taken, and ends, with one
// atomic operation each; Do takes a number besides.
type Lock struct {
	// holder is who has the turn. If somebody is in the line, the bit crowded is set, and
	// holder changes under mu only.
	holder atomic.Uint32

	mu   sync.Mutex // held for bookkeeping only
	line []waiter   // in the order in which they came
}

// The values of holder: nobody, a caller of Lock, or a caller of Do by the mark on its
// stack.
const (
	nobody   = 0
	unmarked = 1
	marked   = 2 // and above: the mark is what is added to it
	crowded  = 1 << 31
)

type waiter struct {
	holder uint32        // that the waiter becomes
	ready  chan struct{} // closed when it has the turn
}

// Do runs f once no other function has the turn. It returns f's error, or without
// having run f ctx's error, [ErrStopped] or [ErrHeld].
func (l *Lock) Do(ctx context.Context, stop <-chan struct{}, f func() error) error {
	m := newMark()
	if err := l.take(ctx, stop, marked+uint32(m)); err != nil {
		return err
	}
	defer l.Unlock()
	return spell(m, digits, f)
}

// Lock takes the turn until Unlock. It is for turns that call nothing which could ask
// for the turn again: such a call would wait for ever. The errors are those of Do.
func (l *Lock) Lock(ctx context.Context, stop <-chan struct{}) error {
	return l.take(ctx, stop, unmarked)
}

// Unlock ends a turn that Lock has begun.
func (l *Lock) Unlock() {
	h := l.holder.Load()
	if h&crowded == 0 && l.holder.CompareAndSwap(h, nobody) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.line) == 0 { // whoever waited has given up
		l.holder.Store(nobody)
		return
	}
	next := l.line[0]
	l.line = slices.Delete(l.line, 0, 1)
	l.holder.Store(next.holder | l.crowd())
	close(next.ready)
}

// crowd returns the bit of holder that the line calls for. l.mu is held.
func (l *Lock) crowd() uint32 {
	if len(l.line) > 0 {
		return crowded
	}
	return 0
}

// take waits for the turn of a holder.
func (l *Lock) take(ctx context.Context, stop <-chan struct{}, h uint32) error {
	if l.holder.CompareAndSwap(nobody, h) {
		return nil
	}
	// Whoever is inside of a turn finds it held by the same holder, at any time.
	if now := l.holder.Load() &^ crowded; now >= marked && inside(mark(now-marked)) {
		return ErrHeld
	}
	w, ok := l.join(h)
	if !ok {
		return nil
	}
	var err error
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-stop:
		err = ErrStopped
	}
	if l.giveUp(w) {
		return err
	}
	return nil
}

// join puts a waiter into the line. It reports false if the turn was free, and is the
// caller's now.
func (l *Lock) join(h uint32) (w waiter, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		now := l.holder.Load()
		switch {
		case now == nobody && l.holder.CompareAndSwap(nobody, h):
			return waiter{}, false
		case now != nobody && l.holder.CompareAndSwap(now, now|crowded):
			w = waiter{h, make(chan struct{})}
			l.line = append(l.line, w)
			return w, true
		}
	}
}

// giveUp takes a waiter out of the line. It reports false if the waiter has its turn by
// now.
func (l *Lock) giveUp(w waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.line, w)
	if i < 0 {
		return false
	}
	l.line = slices.Delete(l.line, i, i+1)
	return true
}
