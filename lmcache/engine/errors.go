package engine

import (
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/internal/sentinel"
)

// errInvalid is what every refusal of this package wraps. It is an fs.ErrInvalid.
var errInvalid = sentinel.New(sentinel.Invalid, "lmcache/engine: invalid argument")

// invalid says that err, if there is one, is about an argument.
func invalid(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errInvalid, err)
}

// ErrLost reports that a chunk which was found when a load began went before it was there: the tokens of the
// request have to be computed.
var ErrLost = errors.New("lmcache/engine: a chunk was evicted while it was loaded")

// errSlow reports that the pins of a call ended by time before it was done with what they pinned.
var errSlow = errors.New("lmcache/engine: a step took longer than Options.LeaseTime, and its pins have ended")
