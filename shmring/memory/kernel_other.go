//go:build !linux

package memory

import (
	"context"

	"github.com/ringcache/ringcache/internal/shmfile"
)

// Policies of [bind].
const (
	bound = iota + 1
	interleaved
)

// prefault is not supported here.
func prefault(context.Context, []byte, int, func(done, total int64)) error {
	return shmfile.ErrUnsupported
}

// pageRange is not supported here.
func pageRange([]byte) (lo, hi uint64) { return 0, 0 }

// collapse is not supported here.
func collapse(context.Context, []byte, int64) error { return shmfile.ErrUnsupported }

// bind is not supported here.
func bind([]byte, int, []int) error { return shmfile.ErrUnsupported }

// nodeBytes is not supported here.
func nodeBytes([]byte) (map[int]int64, error) { return nil, shmfile.ErrUnsupported }

// lock is not supported here.
func lock([]byte) error { return shmfile.ErrUnsupported }

// inspect is not supported here.
func inspect([]byte) (mapping, error) { return mapping{}, shmfile.ErrUnsupported }

// resident is not supported here.
func resident([]byte) (int64, error) { return 0, shmfile.ErrUnsupported }

// allocated is not supported here.
func allocated(string) (int64, error) { return 0, shmfile.ErrUnsupported }
