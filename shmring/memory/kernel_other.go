//go:build !linux

package memory

import "context"

// Policies of [Bind].
const (
	Bound = iota + 1
	Interleaved
)

// Prefault is not supported here.
func Prefault(context.Context, []byte, int, func(done, total int64)) error { return ErrUnsupported }

// Range is not supported here.
func Range([]byte) (lo, hi uint64) { return 0, 0 }

// Collapse is not supported here.
func Collapse(context.Context, []byte, int64) error { return ErrUnsupported }

// Bind is not supported here.
func Bind([]byte, int, []int) error { return ErrUnsupported }

// NodeBytes is not supported here.
func NodeBytes([]byte) (map[int]int64, error) { return nil, ErrUnsupported }

// Lock is not supported here.
func Lock([]byte) error { return ErrUnsupported }

// Inspect is not supported here.
func Inspect([]byte) (Mapping, error) { return Mapping{}, ErrUnsupported }

// Resident is not supported here.
func Resident([]byte) (int64, error) { return 0, ErrUnsupported }

// Allocated is not supported here.
func Allocated(string) (int64, error) { return 0, ErrUnsupported }

// MountOfDir is not supported here.
func MountOfDir(string) (Mount, bool) { return Mount{}, false }
