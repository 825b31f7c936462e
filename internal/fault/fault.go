// Package fault turns a memory fault on a mapping into an error. A mapping
// faults when its file is made shorter behind our back, or is written to though
// it is read-only.
//
// See docs/decisions.md, "Memory is allocated at creation, and accesses are guarded".
package fault

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// ErrFault is wrapped by the errors of [Guard].
var ErrFault = errors.New("memory fault in the mapping: its file was truncated, or it is read-only")

// Error is a memory fault at an address.
type Error struct{ Addr uintptr }

func (e *Error) Error() string { return fmt.Sprintf("%v (at %#x)", ErrFault, e.Addr) }

// Unwrap makes errors.Is(err, ErrFault) true.
func (e *Error) Unwrap() error { return ErrFault }

// Guard runs f and returns its error, or an [*Error] when f touched memory that is
// not there. Other panics go on. f does not escape, so a closure is not allocated; wrappers must
// keep it so.
func Guard(f func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	defer func() {
		switch p := recover().(type) {
		case nil:
		case interface {
			error
			Addr() uintptr
		}:
			err = &Error{p.Addr()}
		default:
			panic(p)
		}
	}()
	return f()
}
