// Package sentinel holds what the errors of all packages share. [New] and [Like] make
// the errors that packages export for errors.Is: each keeps a text of its own, and
// matches those of other packages that mean the same. [UpstreamText] finds the text
// of vLLM's error.
//
// See docs/decisions.md, "The standard library's error, or a sentinel, or a type".
package sentinel

import (
	"errors"
	"io/fs"
)

// Kind is a meaning that errors of several packages share.
type Kind uint8

// The kinds.
const (
	Invalid Kind = iota // an argument makes no sense; also fs.ErrInvalid
	Closed              // what was called is closed; also fs.ErrClosed
	Busy                // what should end is in use
	Corrupt             // bytes in shared memory, or in a sidecar, can't be right
)

// New returns an error that matches every other one of its kind.
func New(k Kind, text string) error { return &kindError{k, text} }

type kindError struct {
	kind Kind
	text string
}

func (e *kindError) Error() string { return e.text }

func (e *kindError) Is(target error) bool {
	switch target {
	case fs.ErrInvalid:
		return e.kind == Invalid
	case fs.ErrClosed:
		return e.kind == Closed
	}
	t, ok := target.(*kindError)
	return ok && t.kind == e.kind
}

// Like returns an error with a text of its own that matches another one as well.
func Like(text string, other error) error { return &likeError{text, other} }

type likeError struct {
	text  string
	other error
}

func (e *likeError) Error() string { return e.text }

func (e *likeError) Unwrap() error { return e.other }

// UpstreamText returns the text of vLLM's own error for the same failure, or ""
// where vLLM has none. The text is that of the first error in err's tree that has a
// method UpstreamText.
func UpstreamText(err error) string {
	var u interface{ UpstreamText() string }
	if errors.As(err, &u) {
		return u.UpstreamText()
	}
	return ""
}
