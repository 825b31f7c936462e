package lrusync

import (
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/internal/sentinel"
)

var (
	// ErrInvalid reports an argument that makes no sense.
	ErrInvalid = sentinel.New(sentinel.Invalid, "lrusync: invalid argument")
	// ErrTooLarge is wrapped by [TooLargeError].
	ErrTooLarge = errors.New("lrusync: larger than the cache")
	// ErrPinned reports that nothing can be evicted: the cache is empty, or every
	// entry is pinned.
	ErrPinned error = pinnedError{}
	// ErrHang is wrapped by [HangError].
	ErrHang = errors.New("lrusync: the engine would hang")
	// ErrNeedData is wrapped by [NeedDataError].
	ErrNeedData = errors.New("lrusync: data needed")
	// ErrNested reports that enqueue called [Sender.Send] or [Sender.Clear]: its
	// turn ends only when it returns.
	ErrNested = errors.New("lrusync: called from within enqueue, which has to return first")
	// ErrUnsized reports an item without a size in vLLM, see [ItemSize].
	ErrUnsized error = unsizedError{}
)

// TooLargeError reports a value that exceeds the whole cache. Send it without
// caching it where the generation can ([pycompat.CacheRules].PutIfFits), refuse
// it or make the cache larger elsewhere.
type TooLargeError struct {
	Key      string
	Size     int64   // bytes
	Capacity float64 // bytes
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("lrusync: %q has %d bytes, the cache %.0f: make the cache larger", e.Key, e.Size, e.Capacity)
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

// NeedDataError reports that a request can't be sent as it is: the engine does
// not have, or will no longer have, these items when the request arrives. Produce
// their data and send again; nothing has changed. Since the data takes room in
// turn, more may be needed then, but each item only once.
type NeedDataError struct{ Keys []string }

func (e *NeedDataError) Error() string {
	return fmt.Sprintf("lrusync: the peer has no copy of %q: send again with their data", e.Keys)
}

// Unwrap makes errors.Is(err, ErrNeedData) true.
func (e *NeedDataError) Unwrap() error { return ErrNeedData }

type pinnedError struct{}

func (pinnedError) Error() string {
	return "lrusync: nothing can be evicted: the cache is empty or every entry is pinned"
}

// UpstreamText is the text of vLLM's RuntimeError for the same failure.
func (pinnedError) UpstreamText() string {
	return "All items are pinned, cannot remove oldest from the cache."
}

type unsizedError struct{}

func (unsizedError) Error() string {
	return "lrusync: an item or list without any value has no size, so vLLM's caches refuse it: leave the empty elem out"
}

// UpstreamText is the text of Python's TypeError for the same failure.
func (unsizedError) UpstreamText() string { return "reduce() of empty iterable with no initial value" }
