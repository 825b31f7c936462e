package mmhash

import (
	"errors"

	"github.com/ringcache/ringcache/internal/sentinel"
)

// Sentinels for errors.Is; each error of this package wraps one of them, but
// for those of a caller's own reader or writer, which are passed on.
var (
	// ErrInvalid: the arguments contradict themselves or each other, such as
	// data that is not as long as its shape says.
	ErrInvalid = sentinel.New(sentinel.Invalid, "mmhash: invalid value")
	// ErrUnsupported: vLLM of the chosen generation refuses the value, or gives
	// it a hash that no other process could arrive at.
	ErrUnsupported = errors.New("mmhash: value has no reproducible hash")
)

// ValueError says which argument cannot be hashed, and why. It wraps
// [ErrInvalid] or [ErrUnsupported].
type ValueError struct {
	// Arg is the name of the keyword argument, empty where it is not known.
	Arg string
	// Problem says what is wrong and what to do.
	Problem string

	sentinel error
}

func (e *ValueError) Error() string {
	if e.Arg == "" {
		return "mmhash: " + e.Problem
	}
	return "mmhash: argument " + quote(e.Arg) + ": " + e.Problem
}

// Unwrap returns the sentinel.
func (e *ValueError) Unwrap() error { return e.sentinel }
