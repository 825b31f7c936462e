package serde

import (
	"errors"
	"strconv"

	"github.com/ringcache/ringcache/internal/sentinel"
)

// Sentinels for errors.Is; each error of this package wraps one of them.
var (
	// ErrCorrupt: the bytes are not what any vLLM of the chosen generation
	// writes.
	ErrCorrupt = errors.New("serde: corrupt data")
	// ErrUnsupported: the bytes may mean something to a Python peer, but are
	// refused here.
	ErrUnsupported = errors.New("serde: unsupported data")
	// ErrInvalid: the value given for encoding cannot be encoded.
	ErrInvalid = sentinel.New(sentinel.Invalid, "serde: invalid value")
)

// CorruptError says what was found where. It wraps [ErrCorrupt].
type CorruptError struct {
	// What is the part that was read, such as `data of elem "pixel_values"`.
	What string
	// Offset is the position in the main document or the metadata, -1 where
	// there is none.
	Offset int
	// Want and Got describe what was expected and found.
	Want, Got string
}

func (e *CorruptError) Error() string {
	at := ""
	if e.Offset >= 0 {
		at = " at byte " + strconv.Itoa(e.Offset)
	}
	return "serde: corrupt " + e.What + at + ": got " + e.Got + ", want " + e.Want +
		" (check that Options.Generation names the peer's vLLM, else drop the object)"
}

// Unwrap returns [ErrCorrupt].
func (e *CorruptError) Unwrap() error { return ErrCorrupt }

// UnsupportedError says what is refused, and what to do. It wraps
// [ErrUnsupported].
type UnsupportedError struct{ Text string }

func (e *UnsupportedError) Error() string { return e.Text }

// Unwrap returns [ErrUnsupported].
func (e *UnsupportedError) Unwrap() error { return ErrUnsupported }

// InvalidError says which part of a value cannot be encoded, and why. It wraps
// [ErrInvalid].
type InvalidError struct{ What, Problem string }

func (e *InvalidError) Error() string {
	return "serde: cannot encode " + e.What + ": " + e.Problem
}

// Unwrap returns [ErrInvalid].
func (e *InvalidError) Unwrap() error { return ErrInvalid }
