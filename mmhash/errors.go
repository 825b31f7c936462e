package mmhash

import (
	"errors"

	"github.com/ringcache/ringcache/internal/sentinel"
)

// errInvalid is the [fs.ErrInvalid] of arguments that contradict themselves or each
// other, such as data that is shorter than its shape demands, and of values whose
// type stands for nothing in Python.
var errInvalid = sentinel.New(sentinel.Invalid, "mmhash: invalid value")

// ErrUnsupported reports a value that vLLM of the chosen generation refuses, or
// gives a hash that no other process could arrive at.
var ErrUnsupported = errors.New("mmhash: value has no reproducible hash")

// ValueError reports an argument that can't be hashed, and why. For errors.Is it is
// an [fs.ErrInvalid] or an [ErrUnsupported]. Every error of this package is a
// ValueError, but for those of pycompat and of a caller's own reader or writer.
type ValueError struct {
	// Arg is the name of the keyword argument, empty where that is unknown.
	Arg string
	// Problem is what is wrong, and what to do.
	Problem string

	sentinel error
}

// Error names the argument, if it is one.
func (e *ValueError) Error() string {
	if e.Arg == "" {
		return "mmhash: " + e.Problem
	}
	return "mmhash: argument " + quote(e.Arg) + ": " + e.Problem
}

// Unwrap returns the sentinel.
func (e *ValueError) Unwrap() error { return e.sentinel }
