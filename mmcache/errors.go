package mmcache

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/ringcache/ringcache/internal/sentinel"
)

// Errors of the segment and the handles of mode shm are those of the packages below:
// segment.ErrOwned, segment.ErrNoSpace, objstore.ErrStale, objstore.ErrBadSignature and
// so on.
var (
	// ErrInvalid is the error of an argument that makes no sense.
	ErrInvalid = sentinel.New(sentinel.Invalid, "mmcache: invalid argument")
	// ErrClosed is the error of a cache that was closed or abandoned, or is shutting
	// down.
	ErrClosed = sentinel.New(sentinel.Closed, "mmcache: closed")
	// ErrBusy is wrapped by [BusyError].
	ErrBusy = sentinel.New(sentinel.Busy, "mmcache: in use")
	// ErrEnded is the error of a request that was finished, aborted or rolled back, or
	// committed where that is too late.
	ErrEnded = errors.New("mmcache: the request has ended")
	// ErrTooLarge is wrapped by [TooLargeError].
	ErrTooLarge = errors.New("mmcache: too large")
	// errPanicked ends the flights of a producer that panicked.
	errPanicked = errors.New("mmcache: the producer panicked")
)

// committedError is an [ErrEnded] with a text of its own.
type committedError struct{}

func (committedError) Error() string { return "mmcache: the request was committed already" }

// Is makes errors.Is(err, ErrEnded) true.
func (committedError) Is(target error) bool { return target == ErrEnded }

// closedError makes an error of a closed store one of a closed cache.
func closedError(err error) error {
	if errors.Is(err, fs.ErrClosed) {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return err
}

// TooLargeError is the error of an item with more bytes than were announced for it, or
// of a request that announces more than all requests together may hold
// (Options.InFlight).
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

// WaitError is the error of a call whose context ended while it waited.
type WaitError struct {
	// For is what the call waited for:
	//
	//	memory  Begin waited for bytes of Options.InFlight
	//	clear   Begin or Lookup waited for a Clear, which itself waits for what was open before
	//	item    Item waited for another call that makes the item
	//	send    Commit, Missed or Clear waited for a send that has not returned
	For     string
	Request string // its id; empty for Lookup and Clear
	Key     string // of an item
	// Of memory: the bytes that the request needs, those in use and how many
	// requests use them, Options.InFlight, and the requests in front in the line.
	Need, InUse, Limit int64
	Holders, Ahead     int

	Err error // the context's
}

const (
	forMemory = "memory"
	forClear  = "clear"
	forItem   = "item"
	forSend   = "send"
)

func (e *WaitError) Error() string {
	var what string
	switch e.For {
	case forMemory:
		what = fmt.Sprintf("for %d bytes of memory: %d requests hold %d of %d bytes (Options.InFlight), and %d more wait in front; "+
			"announce less in Want.Bytes, end requests that are done, or raise InFlight", e.Need, e.Holders, e.InUse, e.Limit, e.Ahead)
	case forClear:
		what = "for a Clear, which waits for all requests and holds from before it to end"
	case forItem:
		what = fmt.Sprintf("for another call that makes item %q", e.Key)
	case forSend:
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

// BusyError lists what blocks a Close or Detach, or what a Shutdown or Clear waited
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

// FallbackError is the error of a configuration with which vLLM would silently run
// another cache than the configured one.
type FallbackError struct {
	Asked, Upstream Mode
	Reason          string
}

func (e *FallbackError) Error() string {
	return fmt.Sprintf("mmcache: cache type %s is configured, but vLLM silently uses %s, since %s: "+
		"change that, or set AllowFallback to do as vLLM", e.Asked, e.Upstream, e.Reason)
}
