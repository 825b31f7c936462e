package shmring

import (
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/internal/sentinel"
	"github.com/ringcache/ringcache/internal/sizes"
)

var (
	// ErrFull is wrapped by [FullError].
	ErrFull = errors.New("shmring: full")
	// ErrTooLarge is wrapped by [TooLargeError].
	ErrTooLarge = errors.New("shmring: chunk can never fit")
	// errInvalid reports an argument that is never valid, as an fs.ErrInvalid.
	errInvalid = sentinel.New(sentinel.Invalid, "shmring: invalid argument")
	// ErrCorrupt is wrapped by [CorruptError].
	ErrCorrupt = sentinel.New(sentinel.Corrupt, "shmring: corrupt chunk")
)

// FullError reports that a chunk does not fit until others are freed.
type FullError struct {
	Need int    // bytes of the chunk, with its header
	Used uint64 // bytes in use, see [Ring.Used] and [Pool.Used]
	Size int    // bytes of the ring or the pool
}

// Error has the bytes that are needed and in use.
func (e *FullError) Error() string {
	return fmt.Sprintf("shmring: no room for a chunk of %s: %s of %s are in use; free chunks first",
		sizes.Text(e.Need), sizes.Text(e.Used), sizes.Text(e.Size))
}

// Unwrap makes errors.Is(err, ErrFull) true.
func (e *FullError) Unwrap() error { return ErrFull }

// TooLargeError reports that a chunk can never fit. vLLM raises the error of a full ring in
// this case, and an OverflowError from 2 GiB on (shm_object_storage.py, 0.11.1 to 0.33.0).
type TooLargeError struct {
	Need  int // bytes of the chunk, with its header
	Limit int // bytes of the largest chunk, with its header
}

// Error has the size of the chunk and the largest that fits.
func (e *TooLargeError) Error() string {
	need, limit := sizes.Above(e.Need, e.Limit)
	return fmt.Sprintf("shmring: a chunk of %s can never fit (at most %s); make the ring larger or the object smaller",
		need, limit)
}

// Unwrap makes errors.Is(err, ErrTooLarge) true.
func (e *TooLargeError) Unwrap() error { return ErrTooLarge }

// CorruptError reports that a chunk header can't be right.
type CorruptError struct {
	Offset uint64 // of the header, from the start of the ring
	What   string
	Got    int64
	Want   string
}

// Error has the offset of the chunk, and the field that is wrong.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("shmring: corrupt chunk at offset %d: %s is %d, want %s; the handle is wrong or something else wrote to the segment", e.Offset, e.What, e.Got, e.Want)
}

// Unwrap makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Unwrap() error { return ErrCorrupt }
