package segment

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/ringcache/ringcache/internal/sentinel"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmring"
)

var (
	// ErrBusy reports that a segment can't be unmapped while it is held. The ErrBusy of other
	// packages matches it.
	ErrBusy = sentinel.New(sentinel.Busy, "segment: in use")
	// ErrSize reports that a segment does not have the size that its user expects.
	ErrSize = errors.New("segment: wrong size")
	// ErrNoSpace reports that there is not enough memory for a segment. Its text describes
	// which limit is too low (the size of the mount, or the memory limit of the container) and
	// the setting that changes the limit, unless only the kernel reported the lack of memory.
	ErrNoSpace = errors.New("segment: not enough shared memory")
	// ErrUnsafe reports that a segment exists but must not be trusted: it is a link
	// or not a file, belongs to another user, or is writable by everyone.
	ErrUnsafe = shmfile.ErrUnsafe
	// ErrOwned reports that the writer of a segment is alive.
	ErrOwned = sidecar.ErrOwned
	// ErrForeign reports that a segment has no sidecar, so something else made the segment.
	ErrForeign = sidecar.ErrForeign

	errInvalid  = sentinel.New(sentinel.Invalid, "segment: invalid argument")
	errClosed   = sentinel.New(sentinel.Closed, "segment: closed")
	errExists   = sentinel.Like("segment: exists", fs.ErrExist)
	errNotExist = sentinel.Like("segment: does not exist", fs.ErrNotExist)
)

// faultError reports that the file of a segment, or its sidecar, became shorter after it was
// mapped, or that it is mapped read-only and was written to.
type faultError struct {
	Name   string // of the segment
	Path   string // of the file: the segment or its sidecar
	Offset int64  // of the byte that is not there
	Err    error
}

func (e *faultError) Error() string {
	return fmt.Sprintf("segment: byte %d of %s is gone: %v; close the store and create it anew; this removes what is left then: %s",
		e.Offset, e.Path, e.Err, shmfile.SweepCommand(e.Name))
}

// Unwrap returns the fault.
func (e *faultError) Unwrap() error { return e.Err }

// Is makes errors.Is(err, shmring.ErrCorrupt) true.
func (e *faultError) Is(target error) bool { return target == shmring.ErrCorrupt }

// sizeError reports that a segment does not have the size that its user expects.
type sizeError struct {
	Name       string
	Got        int64 // bytes of the segment
	Ring       int   // bytes of the ring that the caller expects
	DataOffset int   // bytes in front of it in the caller's generation

	// Adopting reports that the caller is a writer that adopts the segment. LeftRing and
	// LeftGeneration are the ring size and the generation of the earlier writer, 0 and
	// empty if they are unknown.
	Adopting       bool
	LeftRing       int
	LeftGeneration string
}

func (e *sizeError) Error() string {
	want := int64(e.Ring) + int64(e.DataOffset)
	if e.Adopting {
		made := ""
		if e.LeftRing > 0 {
			made = fmt.Sprintf(" (%d and vLLM %s)", e.LeftRing, e.LeftGeneration)
		}
		return fmt.Sprintf("segment: %s, which an earlier writer left, has %d bytes, and the options ask for %d (%d in front of a ring of %d): adopt it with the ring size and the generation that it was made with%s, or remove it (%s) and create it with the new ones",
			e.Name, e.Got, want, e.DataOffset, e.Ring, made, shmfile.SweepCommand(e.Name))
	}
	return fmt.Sprintf("segment: %s has %d bytes, want %d (%d in front of a ring of %d); writer and reader must agree on the ring size and the vLLM generation",
		e.Name, e.Got, want, e.DataOffset, e.Ring)
}

// Unwrap makes errors.Is(err, ErrSize) true.
func (e *sizeError) Unwrap() error { return ErrSize }
