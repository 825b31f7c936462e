package directory

import (
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/internal/sentinel"
)

var (
	// ErrUnknown is the error of a call about a worker that has not registered.
	ErrUnknown = errors.New("directory: the worker is not registered")
	// ErrFull is the error of a call for which there is no room.
	ErrFull = errors.New("directory: full")
	// ErrSyncing is the error of a full synchronisation that begins while another one is under way.
	ErrSyncing = errors.New("directory: another full synchronisation is under way")

	errInvalid = sentinel.New(sentinel.Invalid, "directory: invalid argument")
)

func unknown(id ID) error { return fmt.Errorf("%w: %q %d", ErrUnknown, id.Instance, id.Worker) }
