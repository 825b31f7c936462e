// Package turn is a lock whose waiters can give up, and which notices when its
// holder asks for it again.
package turn

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
)

// ErrHeld reports that the caller runs inside of the function that has the turn, so
// that the wait would never end.
var ErrHeld = errors.New("called from within the function that has the turn")

// Lock gives one function at a time its turn. The zero value is not usable, see
// [New].
type Lock struct {
	free   chan struct{} // contains one value while nobody has the turn
	holder atomic.Pointer[stack]
}

// stack is the start of a call stack, innermost first: who called Do.
type stack [16]uintptr

// New returns a lock that nobody has.
func New() *Lock {
	l := &Lock{free: make(chan struct{}, 1)}
	l.free <- struct{}{}
	return l
}

// Do runs f once no other function has the turn. It returns f's error, or without
// having run f ctx's error, or [ErrHeld].
//
//go:noinline
func (l *Lock) Do(ctx context.Context, f func() error) error {
	select {
	case <-l.free:
	default:
		if l.inside() {
			return ErrHeld
		}
		select {
		case <-l.free:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var s stack
	runtime.Callers(2, s[:])
	l.holder.Store(&s)
	defer func() {
		l.holder.Store(nil)
		l.free <- struct{}{}
	}()
	return f()
}

// inside reports whether the caller of Do was called, however deep, by the
// function that has the turn. Go has no name for a goroutine, so inside looks for
// the holder's call of Do in its own stack. It is only asked when it has to wait.
// It can be wrong about a goroutine that has the turn of another Lock by the same
// calls as the holder has this one.
func (l *Lock) inside() bool {
	holder := l.holder.Load()
	if holder == nil {
		return false
	}
	pcs := make([]uintptr, 512)
	pcs = pcs[:runtime.Callers(3, pcs)] // without Callers, inside, and the Do that asks
	for i := range pcs {
		if !isDo(pcs[i]) {
			continue
		}
		var s stack
		copy(s[:], pcs[i+1:])
		if slices.Equal(s[:], holder[:]) {
			return true
		}
	}
	return false
}

func isDo(pc uintptr) bool {
	f := runtime.FuncForPC(pc - 1)
	return f != nil && f.Name() == "github.com/ringcache/ringcache/internal/turn.(*Lock).Do"
}
