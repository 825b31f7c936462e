package kv

import (
	"fmt"

	"github.com/ringcache/ringcache/internal/sentinel"
)

// errInvalid is what every refusal of this package wraps. It is an fs.ErrInvalid.
var errInvalid = sentinel.New(sentinel.Invalid, "kv: invalid argument")

// invalid says that err, if there is one, is about an argument.
func invalid(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errInvalid, err)
}
