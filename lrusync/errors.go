package lrusync

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ringcache/ringcache/internal/sentinel"
)

var (
	// ErrInvalid says that an argument makes no sense.
	ErrInvalid = sentinel.New(sentinel.Invalid, "lrusync: invalid argument")
	// ErrTooLarge is wrapped by [TooLargeError].
	ErrTooLarge = errors.New("lrusync: larger than the cache")
	// ErrPinned says that nothing can be evicted: the cache is empty, or every
	// entry is pinned.
	ErrPinned error = pinnedError{}
	// ErrGhost is wrapped by [GhostError].
	ErrGhost = errors.New("lrusync: ghost entry")
	// ErrMiss is wrapped by [MissError].
	ErrMiss = errors.New("lrusync: cache miss")
	// ErrNeedData is wrapped by [NeedDataError].
	ErrNeedData = errors.New("lrusync: data needed")
	// ErrNested says that enqueue sends, or clears, itself: its turn ends only when
	// it returns.
	ErrNested = errors.New("lrusync: called from within enqueue, which has to return first")
	// ErrUnsized says that vLLM can't take the size of an item, see [ItemSize].
	ErrUnsized error = unsizedError{}
)

// TooLargeError says that a value exceeds the whole cache. Send it without
// caching it where the generation can ([pycompat.CacheRules].PutIfFits), refuse
// it or make the cache larger elsewhere.
type TooLargeError struct {
	Key      string
	Size     int64
	Capacity float64
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("lrusync: %q has %d bytes, the cache %.0f: make the cache larger", e.Key, e.Size, e.Capacity)
}

// Unwrap makes errors.Is(err, ErrTooLarge) true.
func (e *TooLargeError) Unwrap() error { return ErrTooLarge }

// UpstreamText is the text of cachetools' ValueError for the same failure.
func (e *TooLargeError) UpstreamText() string { return "value too large" }

// GhostError says that eviction would come across a key that was touched while
// it was absent. The LRU cache of vLLM 0.12 to 0.23 then never returns, and its
// process hangs.
type GhostError struct{ Key string }

func (e *GhostError) Error() string {
	return fmt.Sprintf("lrusync: to make room, vLLM's cache of this generation would evict %q, which it touched before it had it, and hang: "+
		"send fewer bytes in one request, or make the cache larger", e.Key)
}

// Unwrap makes errors.Is(err, ErrGhost) true.
func (e *GhostError) Unwrap() error { return ErrGhost }

// MissError says that features came without data and are not cached. A sender
// that is told of it sends them again with data.
type MissError struct {
	// Keys are the missing keys in the order of the features, a key as often as
	// it was missed.
	Keys []string

	upstream string
}

func (e *MissError) Error() string {
	return fmt.Sprintf("lrusync: not cached and sent without data: %q", e.Keys)
}

// Unwrap makes errors.Is(err, ErrMiss) true.
func (e *MissError) Unwrap() error { return ErrMiss }

// UpstreamText is the text of vLLM's error for the same failure: of the
// assertion on the frontend's side and, before 0.28, on the engine's, else of
// MultiModalCacheMissError.
func (e *MissError) UpstreamText() string { return e.upstream }

func missedByReceiver(keys []string, typed bool) *MissError {
	if !typed {
		return &MissError{Keys: keys, upstream: assertionText(keys[0])}
	}
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = pyString(k)
	}
	return &MissError{keys, fmt.Sprintf("Multi-modal items [%s] are not in the receiver (P1) cache and no data was provided to recompute them "+
		"(P0/P1 cache drift); the request should be retried with the multi-modal data attached.", strings.Join(names, ", "))}
}

func missedBySender(key string) *MissError {
	return &MissError{Keys: []string{key}, upstream: assertionText(key)}
}

func assertionText(key string) string { return "Expected a cached item for mm_hash=" + pyString(key) }

// pyString quotes as Python's repr does, for strings without quotes, backslashes
// and control characters.
func pyString(s string) string { return "'" + s + "'" }

// NeedDataError says that a request can't be sent as it is: the engine does not
// have, or will no longer have, these items when the request arrives. Produce
// them and send again; nothing has changed. Since they take room in turn, more
// may be needed then, but each item only once.
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
