package mmcache

import (
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/internal/sentinel"
	"github.com/ringcache/ringcache/objstore"
)

var (
	// ErrInvalid says that an argument makes no sense.
	ErrInvalid = sentinel.New(sentinel.Invalid, "mmcache: invalid argument")
	// ErrClosed says that the cache was closed.
	ErrClosed = sentinel.New(sentinel.Closed, "mmcache: closed")
	// ErrBusy says that requests or holds are open.
	ErrBusy = sentinel.New(sentinel.Busy, "mmcache: in use")
	// ErrEnded says that a request was finished, aborted or rolled back, or
	// committed where that is too late.
	ErrEnded = errors.New("mmcache: the request has ended")
	// ErrTooLarge is wrapped by [TooLargeError].
	ErrTooLarge = errors.New("mmcache: too large")
	// ErrFallback is wrapped by [FallbackError].
	ErrFallback = errors.New("mmcache: the configured cache is not possible")
	// errPanicked ends the flights of a producer that panicked.
	errPanicked = errors.New("mmcache: the producer panicked")
)

// What can be wrong with the segment and the handles of mode shm, see
// package objstore.
var (
	ErrExists       = objstore.ErrExists
	ErrNotExist     = objstore.ErrNotExist
	ErrOwned        = objstore.ErrOwned
	ErrForeign      = objstore.ErrForeign
	ErrUnsafe       = objstore.ErrUnsafe
	ErrSize         = objstore.ErrSize
	ErrNoSpace      = objstore.ErrNoSpace
	ErrMemory       = objstore.ErrMemory
	ErrUnsupported  = objstore.ErrUnsupported
	ErrFull         = objstore.ErrFull
	ErrCorrupt      = objstore.ErrCorrupt
	ErrStale        = objstore.ErrStale
	ErrBadSignature = objstore.ErrBadSignature
)

// TooLargeError says that an item has more bytes than was announced for it, or
// that a request announces more than the cache may ever hold at once.
type TooLargeError struct {
	Key   string // empty for a whole request
	Bytes int64
	Limit int64
}

func (e *TooLargeError) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("mmcache: the request's items may take %d bytes, Options.InFlight is %d: "+
			"announce less in Want.Bytes or raise it", e.Bytes, e.Limit)
	}
	return fmt.Sprintf("mmcache: item %q takes %d bytes, but Want.Bytes announced %d", e.Key, e.Bytes, e.Limit)
}

// Unwrap makes errors.Is(err, ErrTooLarge) true.
func (e *TooLargeError) Unwrap() error { return ErrTooLarge }

// FallbackError says that vLLM would silently run another cache than the
// configured one.
type FallbackError struct {
	Asked, Upstream Mode
	Reason          string
}

func (e *FallbackError) Error() string {
	return fmt.Sprintf("mmcache: cache type %s is configured, but vLLM silently uses %s, since %s: "+
		"change that, or set AllowFallback to do as vLLM", e.Asked, e.Upstream, e.Reason)
}

// Unwrap makes errors.Is(err, ErrFallback) true.
func (e *FallbackError) Unwrap() error { return ErrFallback }
