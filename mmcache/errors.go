package mmcache

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/ringcache/ringcache/internal/sentinel"
	"github.com/ringcache/ringcache/internal/sizes"
	"github.com/ringcache/ringcache/objstore"
)

// ErrEnded is the error of a request that was finished, aborted or rolled back, or
// committed where that is too late.
var ErrEnded = errors.New("mmcache: the request has ended")

var (
	errInvalid = sentinel.New(sentinel.Invalid, "mmcache: invalid argument")
	// errClosed is the error of a cache that was closed or abandoned, or is shutting
	// down.
	errClosed = sentinel.New(sentinel.Closed, "mmcache: closed")
	errBusy   = sentinel.New(sentinel.Busy, "mmcache: in use")
	// errPanicked ends the builds of a producer that panicked.
	errPanicked = errors.New("mmcache: the producer panicked")
)

// Why an item is not cached (Item.Refused), in every mode. The store's own errors name
// what others hold, and another tenant may get the item from the request that made it.
var (
	errFull     = sentinel.Like("mmcache: there is no room that nobody needs", objstore.ErrFull)
	errTooLarge = sentinel.Like("mmcache: the item is larger than the cache or its largest object",
		objstore.ErrTooLarge)
	errInUse = sentinel.Like("mmcache: a request still uses an invalidated copy", objstore.ErrKeyExists)
)

// committedError is an [ErrEnded] with a text of its own.
type committedError struct{}

func (committedError) Error() string { return "mmcache: the request was committed already" }

// Is makes errors.Is(err, ErrEnded) true.
func (committedError) Is(target error) bool { return target == ErrEnded }

// closedError makes an error of a closed store one of a closed cache.
func closedError(err error) error {
	if errors.Is(err, fs.ErrClosed) {
		return fmt.Errorf("%w: %w", errClosed, err)
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

// Error names the option to change, or the item that is larger than announced.
func (e *TooLargeError) Error() string {
	if e.Key == "" {
		size, limit := sizes.Above(e.Bytes, e.Limit)
		return fmt.Sprintf("mmcache: the request's items may take %s, Options.InFlight is %s: announce less in Want.Bytes or raise it", size, limit)
	}
	return fmt.Sprintf("mmcache: item %q takes %d bytes, but Want.Bytes announced %d", e.Key, e.Bytes, e.Limit)
}

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

// Error says what the call waited for, and who holds it.
func (e *WaitError) Error() string {
	var what string
	switch e.For {
	case forMemory:
		what = fmt.Sprintf("for %s of memory: %d requests hold %s of %s (Options.InFlight), and %d more wait in front; "+
			"announce less in Want.Bytes, end requests that are done, or raise InFlight", sizes.Text(e.Need), e.Holders,
			sizes.Text(e.InUse), sizes.Text(e.Limit), e.Ahead)
	case forClear:
		what = "for a Clear, which waits for all requests and holds from before it to end"
	case forItem:
		what = fmt.Sprintf("for another call that makes item %q", e.Key)
	case forSend:
		what = "for the send of another request, or of this one, which has not returned; a send must not send itself, nor clear"
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
	// Err is the error of the context of Shutdown or Clear, or of the store where that
	// is busy by itself; else nil.
	Err error
}

// mostNamed is how many holders an error names.
const mostNamed = 8

// Error names the first holders.
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
		errBusy, strings.Join(names, ", "))
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap makes errors.Is match Err, and objstore.ErrBusy.
func (e *BusyError) Unwrap() []error {
	if e.Err == nil {
		return []error{errBusy}
	}
	return []error{errBusy, e.Err}
}
