package mmcache

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ringcache/ringcache/internal/sentinel"
	"github.com/ringcache/ringcache/objstore"
)

var (
	// ErrInvalid says that an argument makes no sense.
	ErrInvalid = sentinel.New(sentinel.Invalid, "mmcache: invalid argument")
	// ErrClosed says that the cache was closed or abandoned, or is shutting down.
	ErrClosed = sentinel.New(sentinel.Closed, "mmcache: closed")
	// ErrBusy is wrapped by [BusyError].
	ErrBusy = sentinel.New(sentinel.Busy, "mmcache: in use")
	// ErrEnded says that a request was finished, aborted or rolled back, or
	// committed where that is too late ([ErrCommitted]).
	ErrEnded = errors.New("mmcache: the request has ended")
	// ErrCommitted says that a request was committed already. It is an [ErrEnded].
	ErrCommitted error = committedError{}
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
	ErrFull         = objstore.ErrFull
	ErrCorrupt      = objstore.ErrCorrupt
	ErrStale        = objstore.ErrStale
	ErrBadSignature = objstore.ErrBadSignature
)

type committedError struct{}

func (committedError) Error() string { return "mmcache: the request was committed already" }

// Is makes errors.Is(err, ErrEnded) true.
func (committedError) Is(target error) bool { return target == ErrEnded }

// closedError makes an error of a closed store one that says so of the cache.
func closedError(err error) error {
	if errors.Is(err, objstore.ErrClosed) {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return err
}

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

// WaitReason is what a call waited for.
type WaitReason uint8

const (
	// WaitMemory: Begin waited for bytes of Options.InFlight.
	WaitMemory WaitReason = iota + 1
	// WaitClear: Begin or Lookup waited for a Clear to end, which itself waits for
	// what was open before.
	WaitClear
	// WaitItem: Item waited for another call that makes the item.
	WaitItem
	// WaitSend: Commit, Missed or Clear waited for a send that has not returned.
	WaitSend
)

// WaitError says what a call waited for when its context ended.
type WaitError struct {
	For     WaitReason
	Request string // its id; empty for Lookup and Clear
	Key     string // of WaitItem
	// Of WaitMemory: the bytes that the request needs, those in use and how many
	// requests use them, Options.InFlight, and the requests in front in the line.
	Need, InUse, Limit int64
	Holders, Ahead     int

	Err error // the context's
}

func (e *WaitError) Error() string {
	var what string
	switch e.For {
	case WaitMemory:
		what = fmt.Sprintf("for %d bytes of memory: %d requests hold %d of %d bytes (Options.InFlight), and %d more wait in front; "+
			"announce less in Want.Bytes, end requests that are done, or raise InFlight", e.Need, e.Holders, e.InUse, e.Limit, e.Ahead)
	case WaitClear:
		what = "for a Clear, which waits for all requests and holds from before it to end"
	case WaitItem:
		what = fmt.Sprintf("for another call that makes item %q", e.Key)
	case WaitSend:
		what = "for the send of another request, which has not returned"
	}
	who := ""
	if e.Request != "" {
		who = fmt.Sprintf("request %q ", e.Request)
	}
	return fmt.Sprintf("mmcache: %swaited %s: %v", who, what, e.Err)
}

// Unwrap returns the context's error.
func (e *WaitError) Unwrap() error { return e.Err }

// BusyError says what blocks a Close or Detach, or what a Shutdown or Clear waited
// for.
type BusyError struct {
	Holders []Holder
	Err     error // of the context of Shutdown or Clear, else nil
}

// mostNamed is how many holders an error names.
const mostNamed = 8

func (e *BusyError) Error() string {
	var names []string
	for i, h := range e.Holders {
		if i == mostNamed {
			names = append(names, fmt.Sprintf("and %d more", len(e.Holders)-i))
			break
		}
		names = append(names, h.String())
	}
	if names == nil {
		names = []string{"a call that is running"}
	}
	text := fmt.Sprintf("%v: %s; finish, abort or roll back every request and release every hold, or Abandon the cache",
		ErrBusy, strings.Join(names, ", "))
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap makes errors.Is true of [ErrBusy] and of the context's error.
func (e *BusyError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrBusy}
	}
	return []error{ErrBusy, e.Err}
}

func ago(t time.Time) time.Duration { return time.Since(t).Round(time.Millisecond) }

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
