// Package turn is a lock whose waiters can give up, and which notices when its
// holder asks for it again.
package turn

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// ErrHeld reports that the caller runs inside of the function that has the turn, so
// that the wait would never end.
var ErrHeld = errors.New("called from within the function that has the turn")

// ErrStopped reports that stop was closed before the caller had its turn.
var ErrStopped = errors.New("the wait for the turn was stopped")

// Lock gives one function at a time its turn, in the order in which they asked. The
// zero value is a lock that nobody has. A turn that is free is taken without an
// allocation.
type Lock struct {
	mu     sync.Mutex // held for bookkeeping only
	holder holder
	line   []waiter // in the order in which they came; empty while nobody has the turn
}

// holder is who has the turn: nobody, a caller of Lock, or a caller of Do by the mark
// on its stack.
type holder uint32

const (
	nobody   holder = iota
	unmarked        // a caller of Lock
	marked          // and above: a caller of Do, with the mark holder - marked
)

type waiter struct {
	holder holder        // that the waiter becomes
	ready  chan struct{} // closed when it has the turn
}

// Do runs f once no other function has the turn. It returns f's error, or without
// having run f ctx's error, [ErrStopped] or [ErrHeld].
func (l *Lock) Do(ctx context.Context, stop <-chan struct{}, f func() error) error {
	m := newMark()
	if err := l.take(ctx, stop, marked+holder(m)); err != nil {
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
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.line) == 0 {
		l.holder = nobody
		return
	}
	next := l.line[0]
	l.line = slices.Delete(l.line, 0, 1)
	l.holder = next.holder
	close(next.ready)
}

// take waits for the turn of a holder.
func (l *Lock) take(ctx context.Context, stop <-chan struct{}, h holder) error {
	now, w := l.tryTake(h, false)
	if now == nobody {
		return nil
	}
	if now >= marked && inside(mark(now-marked)) {
		return ErrHeld // whoever is inside of a turn finds it held by the same holder
	}
	if now, w = l.tryTake(h, true); now == nobody {
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

// tryTake takes the turn if nobody has it. Else it returns the holder and, if the
// caller wants to wait, its place in the line.
func (l *Lock) tryTake(h holder, wait bool) (now holder, w waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder == nobody {
		l.holder = h
		return nobody, waiter{}
	}
	if wait {
		w = waiter{h, make(chan struct{})}
		l.line = append(l.line, w)
	}
	return l.holder, w
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
