package paged

import (
	"fmt"

	"github.com/ringcache/ringcache/internal/sentinel"
)

// errInvalid is what every refusal of this package wraps. It is an fs.ErrInvalid.
var errInvalid = sentinel.New(sentinel.Invalid, "paged: invalid argument")

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errInvalid, fmt.Sprintf(format, args...))
}
