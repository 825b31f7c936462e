package segment

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/ringcache/ringcache/internal/sentinel"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/shmring"
)

var (
	// ErrClosed says that the segment was closed.
	ErrClosed = sentinel.New(sentinel.Closed, "shmring: segment is closed")
	// ErrBusy says that a segment can't be unmapped while something uses it.
	ErrBusy = sentinel.New(sentinel.Busy, "shmring: segment is in use")
	// ErrSize is wrapped by [SizeError].
	ErrSize = errors.New("shmring: segment has the wrong size")
	// ErrExists says that a segment of this name exists already. It is also an
	// fs.ErrExist.
	ErrExists = sentinel.Like("shmring: segment exists", fs.ErrExist)
	// ErrNotExist says that there is no segment of this name. It is also an
	// fs.ErrNotExist.
	ErrNotExist = sentinel.Like("shmring: no such segment", fs.ErrNotExist)
	// ErrNoSpace says that the memory for a segment is not there.
	ErrNoSpace = errors.New("shmring: not enough shared memory")
	// ErrUnsafe says that a segment exists but must not be trusted: it is a link
	// or no file, belongs to another user, or everyone may write it.
	ErrUnsafe = shmfile.ErrUnsafe
	// ErrUnsupported says that this system has no segments.
	ErrUnsupported = shmfile.ErrUnsupported
)

// SpaceError says how much memory a new segment needs, how much there is, which
// limit is in the way (the size of the mount, or the memory limit of the
// container) and which setting changes it. [ErrNoSpace] comes with it.
type SpaceError = shmfile.SpaceError

// FaultError says that a file of a segment is shorter than it was when it was
// mapped, or that it can't be written to.
type FaultError struct {
	Name   string // of the segment
	Path   string // of the file: the segment or its sidecar
	Offset int64  // of the byte that is not there
	Err    error
}

func (e *FaultError) Error() string {
	return fmt.Sprintf("shmring: byte %d of %s is gone: %v; close the store and create it anew; this removes what is left then: %s",
		e.Offset, e.Path, e.Err, shmfile.SweepCommand(e.Name))
}

// Unwrap returns the fault.
func (e *FaultError) Unwrap() error { return e.Err }

// Is makes errors.Is(err, shmring.ErrCorrupt) true.
func (e *FaultError) Is(target error) bool { return target == shmring.ErrCorrupt }

// SizeError says that a segment and its user disagree about the ring.
type SizeError struct {
	Name       string
	Got        int64 // bytes of the segment
	Ring       int   // bytes of the ring that the caller expects
	DataOffset int   // bytes in front of it in the caller's generation

	// Adopting says that the caller is a writer that adopts the segment. LeftRing
	// and LeftGeneration are what the earlier writer made it with, 0 and empty if
	// that is not known.
	Adopting       bool
	LeftRing       int
	LeftGeneration string
}

func (e *SizeError) Error() string {
	want := int64(e.Ring) + int64(e.DataOffset)
	if e.Adopting {
		made := ""
		if e.LeftRing > 0 {
			made = fmt.Sprintf(" (%d and vLLM %s)", e.LeftRing, e.LeftGeneration)
		}
		return fmt.Sprintf("shmring: segment %s, which an earlier writer left, has %d bytes, and the options ask for %d (%d in front of a ring of %d): adopt it with the ring size and the generation that it was made with%s, or remove it (%s) and create it with the new ones",
			e.Name, e.Got, want, e.DataOffset, e.Ring, made, shmfile.SweepCommand(e.Name))
	}
	return fmt.Sprintf("shmring: segment %s has %d bytes, want %d (%d in front of a ring of %d); writer and reader must agree on the ring size and the vLLM generation",
		e.Name, e.Got, want, e.DataOffset, e.Ring)
}

// Unwrap makes errors.Is(err, ErrSize) true.
func (e *SizeError) Unwrap() error { return ErrSize }
