package pycompat

import (
	"errors"
	"io/fs"

	"github.com/ringcache/ringcache/internal/sentinel"
)

// ErrUnknownVersion reports a vLLM version that is not in the table.
var ErrUnknownVersion = errors.New("pycompat: unknown vLLM version")

var (
	errInvalid = sentinel.New(sentinel.Invalid, "pycompat: invalid argument")
	// errUnnamed reports a lock that other programs can't open, because it was made in a
	// "fork" context and has no name.
	errUnnamed = sentinel.Like("pycompat: the Python lock has no name that another program can open; "+
		"make it with multiprocessing.get_context(\"spawn\").Lock() (vLLM: VLLM_WORKER_MULTIPROC_METHOD=spawn)", fs.ErrNotExist)
	// errLayout reports a file that is not a semaphore as glibc lays it out on a 64-bit
	// little-endian system.
	errLayout  = sentinel.Like("pycompat: not a glibc semaphore", errors.ErrUnsupported)
	errNotHeld = sentinel.Like("pycompat: semaphore released too many times", fs.ErrInvalid)
	errClosed  = sentinel.New(sentinel.Closed, "pycompat: semaphore is closed")
	errBusy    = sentinel.New(sentinel.Busy, "pycompat: semaphore is in use")
)
