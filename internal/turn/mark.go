package turn

import (
	"runtime"
	"strings"
	"sync/atomic"
)

// mark names a turn on the stack of its holder: f runs below a chain of calls whose
// functions are the mark's digits. Go has no name for a goroutine, so a waiter reads its
// own stack to find out whether it runs inside of the turn. To spell a mark takes 30 to
// 60 ns; to record the holder's stack with runtime.Callers takes 400 to 900 ns.
//
// Marks repeat after 65536 turns. So inside can be wrong about a goroutine that waits for
// one lock from within a turn of another lock, if that turn began a multiple of 65536
// turns before.
type mark uint16

// digits is the number of hexadecimal digits of a mark.
const digits = 4

var turns atomic.Uint32

func newMark() mark { return mark(turns.Add(1)) }

// inside reports whether its caller was called, however deep, by the f of a mark.
func inside(m mark) bool {
	pcs := make([]uintptr, 512)
	n := runtime.Callers(2, pcs)
	for ; n == len(pcs); n = runtime.Callers(2, pcs) {
		pcs = make([]uintptr, 2*n)
	}
	pcs = pcs[:n]
	var found mark
	read := 0
	for frames, more := runtime.CallersFrames(pcs), true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		d, ok := strings.CutPrefix(frame.Function, "github.com/ringcache/ringcache/internal/turn.digit")
		if !ok {
			continue
		}
		found = found<<4 | mark(strings.Index("0123456789abcdef", d)) // the last digit is the innermost call
		if read++; read%digits == 0 && found == m {
			return true
		}
	}
	return false
}

// spell calls f below calls of the first n digits of m, the lowest first.
func spell(m mark, n int, f func() error) error {
	if n == 0 {
		return f()
	}
	rest := m >> 4
	n--
	switch m & 15 {
	case 0:
		return digit0(rest, n, f)
	case 1:
		return digit1(rest, n, f)
	case 2:
		return digit2(rest, n, f)
	case 3:
		return digit3(rest, n, f)
	case 4:
		return digit4(rest, n, f)
	case 5:
		return digit5(rest, n, f)
	case 6:
		return digit6(rest, n, f)
	case 7:
		return digit7(rest, n, f)
	case 8:
		return digit8(rest, n, f)
	case 9:
		return digit9(rest, n, f)
	case 10:
		return digita(rest, n, f)
	case 11:
		return digitb(rest, n, f)
	case 12:
		return digitc(rest, n, f)
	case 13:
		return digitd(rest, n, f)
	case 14:
		return digite(rest, n, f)
	}
	return digitf(rest, n, f)
}

// The digits. What they do is to be on the stack.

//go:noinline
func digit0(m mark, n int, f func() error) error { return spell(m, n, f) }

//go:noinline
func digit1(m mark, n int, f func() error) error { return spell(m, n, f) }

//go:noinline
func digit2(m mark, n int, f func() error) error { return spell(m, n, f) }

//go:noinline
func digit3(m mark, n int, f func() error) error { return spell(m, n, f) }

//go:noinline
func digit4(m mark, n int, f func() error) error { return spell(m, n, f) }

//go:noinline
func digit5(m mark, n int, f func() error) error { return spell(m, n, f) }

//go:noinline
func digit6(m mark, n int, f func() error) error { return spell(m, n, f) }

//go:noinline
func digit7(m mark, n int, f func() error) error { return spell(m, n, f) }

//go:noinline
func digit8(m mark, n int, f func() error) error { return spell(m, n, f) }

//go:noinline
func digit9(m mark, n int, f func() error) error { return spell(m, n, f) }

//go:noinline
func digita(m mark, n int, f func() error) error { return spell(m, n, f) }

//go:noinline
func digitb(m mark, n int, f func() error) error { return spell(m, n, f) }

//go:noinline
func digitc(m mark, n int, f func() error) error { return spell(m, n, f) }

//go:noinline
func digitd(m mark, n int, f func() error) error { return spell(m, n, f) }

//go:noinline
func digite(m mark, n int, f func() error) error { return spell(m, n, f) }

//go:noinline
func digitf(m mark, n int, f func() error) error { return spell(m, n, f) }
