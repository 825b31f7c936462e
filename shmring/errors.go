package shmring

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/ringcache/ringcache/internal/sentinel"
	"github.com/ringcache/ringcache/internal/shmfile"
)

var (
	// ErrFull is wrapped by [FullError].
	ErrFull = errors.New("shmring: ring is full")
	// ErrTooLarge is wrapped by [TooLargeError].
	ErrTooLarge = errors.New("shmring: chunk is larger than the ring can ever hold")
	// ErrInvalid says that an argument makes no sense. It matches the ErrInvalid of
	// every other package of this module.
	ErrInvalid = sentinel.New(sentinel.Invalid, "shmring: invalid argument")
	// ErrCorrupt is wrapped by [CorruptError].
	ErrCorrupt = errors.New("shmring: corrupt chunk")
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
	// ErrForeign says that a segment has no sidecar, so something else made it.
	ErrForeign = errors.New("shmring: not a segment of this library")
	// ErrOwned says that a segment's writer lives.
	ErrOwned = errors.New("shmring: segment has a living writer")
	// ErrUnsupported says that this system has no segments.
	ErrUnsupported = shmfile.ErrUnsupported
)

// FullError says that a chunk does not fit until others are freed.
type FullError struct {
	Need int    // bytes of the chunk, with its header
	Used uint64 // bytes between the oldest chunk and the next one, with padding
	Size int    // bytes of the ring
}

func (e *FullError) Error() string {
	return fmt.Sprintf("shmring: no room for a chunk of %d bytes: %d of %d bytes are in use; free chunks first", e.Need, e.Used, e.Size)
}

// Unwrap makes errors.Is(err, ErrFull) true.
func (e *FullError) Unwrap() error { return ErrFull }

// UpstreamText is the text of vLLM's MemoryError for the same failure.
func (e *FullError) UpstreamText() string {
	return "Not enough space in the data buffer, try calling free_buf() to free up space"
}

// TooLargeError says that a chunk can't ever fit. Upstream raises the error of
// a full ring in this case, and an OverflowError from 2 GiB on.
type TooLargeError struct {
	Need  int // bytes of the chunk, with its header
	Limit int // most bytes that a chunk of this ring can have
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("shmring: a chunk of %d bytes can never fit (at most %d); make the ring larger or the object smaller", e.Need, e.Limit)
}

// Unwrap makes errors.Is(err, ErrTooLarge) true.
func (e *TooLargeError) Unwrap() error { return ErrTooLarge }

// UpstreamText is the text of vLLM's MemoryError, which makes no difference
// between what does not fit now and what never will.
func (e *TooLargeError) UpstreamText() string { return (*FullError)(nil).UpstreamText() }

// CorruptError says that a chunk header can't be right.
type CorruptError struct {
	Offset uint64 // physical, from the start of the ring
	What   string
	Got    int64
	Want   string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("shmring: corrupt chunk at offset %d: %s is %d, want %s; the handle is wrong or something else wrote to the segment", e.Offset, e.What, e.Got, e.Want)
}

// Unwrap makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Unwrap() error { return ErrCorrupt }

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
		e.Offset, e.Path, e.Err, sweepCommand(e.Name))
}

// Unwrap returns the fault.
func (e *FaultError) Unwrap() error { return e.Err }

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *FaultError) Is(target error) bool { return target == ErrCorrupt }

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
			e.Name, e.Got, want, e.DataOffset, e.Ring, made, sweepCommand(e.Name))
	}
	return fmt.Sprintf("shmring: segment %s has %d bytes, want %d (%d in front of a ring of %d); writer and reader must agree on the ring size and the vLLM generation",
		e.Name, e.Got, want, e.DataOffset, e.Ring)
}

// Unwrap makes errors.Is(err, ErrSize) true.
func (e *SizeError) Unwrap() error { return ErrSize }
