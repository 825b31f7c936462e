package pycompat

import (
	"errors"

	"github.com/ringcache/ringcache/internal/sentinel"
	"github.com/ringcache/ringcache/internal/shmfile"
)

var (
	// ErrInvalid reports an argument that makes no sense.
	ErrInvalid = sentinel.New(sentinel.Invalid, "pycompat: invalid argument")
	// ErrUnknownVersion reports a vLLM version that is not in the table.
	ErrUnknownVersion = errors.New("pycompat: unknown vLLM version")

	// ErrUnnamedSemaphore reports a lock that other programs can't open, because
	// it was made in a "fork" context and has no name.
	ErrUnnamedSemaphore = errors.New("pycompat: the Python lock has no name that another program can open; " +
		"make it with multiprocessing.get_context(\"spawn\").Lock() (vLLM: VLLM_WORKER_MULTIPROC_METHOD=spawn)")
	// ErrSemaphoreLayout reports a file that is not a semaphore as glibc lays it
	// out on a 64-bit little-endian system.
	ErrSemaphoreLayout = errors.New("pycompat: not a glibc semaphore")
	// ErrNotHeld reports the release of a lock that no one holds.
	ErrNotHeld = errors.New("pycompat: semaphore released too many times")
	// ErrClosed reports a call on a semaphore that was closed.
	ErrClosed = sentinel.New(sentinel.Closed, "pycompat: semaphore is closed")
	// ErrBusy reports that a semaphore can't be closed while it is in use.
	ErrBusy = sentinel.New(sentinel.Busy, "pycompat: semaphore is in use")
	// ErrUnsafe reports a file that exists but must not be trusted: it is a link,
	// is not a regular file, belongs to another user, or everyone may write it.
	ErrUnsafe = shmfile.ErrUnsafe
)
