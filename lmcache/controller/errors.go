package controller

import (
	"fmt"

	"github.com/ringcache/ringcache/internal/sentinel"
)

// errInvalid is what every refusal of a message wraps. It is an fs.ErrInvalid.
var errInvalid = sentinel.New(sentinel.Invalid, "controller: invalid message")

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errInvalid}, args...)...)
}
