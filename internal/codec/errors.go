package codec

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/ringcache/ringcache/internal/sentinel"
)

// Sentinels for errors.Is, which package serde exports; each error of this package
// wraps one of them.
var (
	ErrCorrupt     = errors.New("serde: corrupt data")
	ErrUnsupported = errors.New("serde: unsupported data")
	ErrInvalid     = sentinel.New(sentinel.Invalid, "serde: invalid value")
)

// CorruptError reports what was found where. It wraps [ErrCorrupt].
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

// UnsupportedError reports what is refused, and what to do. It wraps
// [ErrUnsupported].
type UnsupportedError struct{ Text string }

func (e *UnsupportedError) Error() string { return e.Text }

// Unwrap returns [ErrUnsupported].
func (e *UnsupportedError) Unwrap() error { return ErrUnsupported }

// UnknownDType refuses a tensor by the name of its dtype.
func UnknownDType(name []byte) error {
	return &UnsupportedError{fmt.Sprintf("serde: tensor has the dtype %.64q, which this library does not know; "+
		"ask for a dtype of torch 2.14 or update the library", name)}
}

// InvalidError reports which part of a value can't be encoded, and why. It wraps
// [ErrInvalid].
type InvalidError struct{ What, Problem string }

func (e *InvalidError) Error() string {
	return "serde: cannot encode " + e.What + ": " + e.Problem
}

// Unwrap returns [ErrInvalid].
func (e *InvalidError) Unwrap() error { return ErrInvalid }

// Invalid returns an [InvalidError].
func Invalid(what, format string, args ...any) error {
	return &InvalidError{what, fmt.Sprintf(format, args...)}
}
