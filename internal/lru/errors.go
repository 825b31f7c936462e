package lru

import (
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/internal/sentinel"
	"github.com/ringcache/ringcache/internal/sizes"
)

var (
	errInvalid = sentinel.New(sentinel.Invalid, "lrusync: invalid argument")
	// ErrTooLarge is wrapped by [TooLargeError].
	ErrTooLarge = errors.New("lrusync: larger than the cache")
	// ErrPinned reports that nothing can be evicted: the cache is empty, or every
	// entry is pinned.
	ErrPinned error = pinnedError{}
	// ErrHang is wrapped by [HangError].
	ErrHang = errors.New("lrusync: the engine would hang")
)

// TooLargeError reports a value that exceeds the whole cache. Send it without
// caching it where the generation can (PutIfFits), refuse it or make the cache larger
// elsewhere.
type TooLargeError struct {
	Key      string
	Size     int64   // bytes
	Capacity float64 // bytes
}

func (e *TooLargeError) Error() string {
	size, capacity := sizes.Above(e.Size, int64(e.Capacity))
	return fmt.Sprintf("lrusync: %q has %s, the cache %s: make the cache larger", e.Key, size, capacity)
}

// Unwrap makes errors.Is(err, ErrTooLarge) true.
func (e *TooLargeError) Unwrap() error { return ErrTooLarge }

// UpstreamText is the text of cachetools' ValueError for the same failure.
func (e *TooLargeError) UpstreamText() string { return "value too large" }

// HangError reports a request that would hang the engine: to make room, its cache
// would evict a key that it touched while the key was absent. The LRU cache of
// vLLM 0.12 to 0.23 then never returns.
type HangError struct{ Key string }

func (e *HangError) Error() string {
	return fmt.Sprintf("lrusync: to make room, vLLM's cache of this generation would evict %q, which it touched before it had it, and hang: "+
		"send fewer bytes in one request, or make the cache larger", e.Key)
}

// Unwrap makes errors.Is(err, ErrHang) true.
func (e *HangError) Unwrap() error { return ErrHang }

type pinnedError struct{}

func (pinnedError) Error() string {
	return "lrusync: nothing can be evicted: the cache is empty or every entry is pinned"
}

// UpstreamText is the text of vLLM's RuntimeError for the same failure.
func (pinnedError) UpstreamText() string {
	return "All items are pinned, cannot remove oldest from the cache."
}
