package lrusync

import (
	"fmt"

	"github.com/ringcache/ringcache/internal/lru"
	"github.com/ringcache/ringcache/internal/sentinel"
)

var (
	// ErrTooLarge reports an item that exceeds the whole cache. Send it without caching it
	// where the generation can (PutIfFits of its Cache), refuse it or make the cache larger
	// elsewhere.
	ErrTooLarge = lru.ErrTooLarge
	// ErrHang reports a request that would hang the engine: to make room, its cache
	// would evict a key that it touched while the key was absent. The LRU cache of
	// vLLM 0.12 to 0.23 then never returns.
	ErrHang = lru.ErrHang

	errInvalid = sentinel.New(sentinel.Invalid, "lrusync: invalid argument")
	// errUnsized reports an item without a size in vLLM, see [ItemSize].
	errUnsized error = unsizedError{}
)

// NeedDataError reports that a request can't be sent as it is: the engine does
// not have, or will no longer have, these items when the request arrives. Produce
// their data and send again; nothing has changed. Since the data takes room in
// turn, more may be needed then, but each item only once.
type NeedDataError struct{ Keys []string }

// Error names the keys whose data have to be sent.
func (e *NeedDataError) Error() string {
	return fmt.Sprintf("lrusync: the peer has no copy of %q: send again with their data", e.Keys)
}

type unsizedError struct{}

func (unsizedError) Error() string {
	return "lrusync: an item or list without any value has no size, so vLLM's caches refuse it: leave the empty elem out"
}

func (unsizedError) Unwrap() error { return errInvalid }

// UpstreamText is the text of Python's TypeError for the same failure.
func (unsizedError) UpstreamText() string { return "reduce() of empty iterable with no initial value" }
