package objstore

import (
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/internal/sentinel"
	"github.com/ringcache/ringcache/internal/sizes"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmstore"
)

// What users meet with every request. Other errors are those of the packages below:
// segment.ErrOwned, segment.ErrNoSpace and so on of a segment, an fs.ErrInvalid of an
// argument that makes no sense, an fs.ErrClosed of a store or a reader that was closed.
var (
	// ErrKeyExists is wrapped by [shmstore.KeyError].
	ErrKeyExists = shmstore.ErrKeyExists
	// ErrNotFound is wrapped by [shmstore.KeyError].
	ErrNotFound = shmstore.ErrNotFound
	// ErrTooLarge is wrapped by [shmstore.TooLargeError].
	ErrTooLarge = shmring.ErrTooLarge
	// ErrFull is wrapped by [shmstore.FullError] and [HeadError].
	ErrFull = shmring.ErrFull
	// ErrStale is wrapped by [StaleError].
	ErrStale = shmstore.ErrStale
	// ErrBadSignature is wrapped by [SignatureError].
	ErrBadSignature = errors.New("objstore: bad handle signature")
	// ErrCorrupt is wrapped by [shmstore.CorruptError].
	ErrCorrupt = shmring.ErrCorrupt
	// ErrBusy reports that views or reservations are open.
	ErrBusy = segment.ErrBusy
	// ErrEnded reports that a request takes nothing more: it has ended, or was
	// committed.
	ErrEnded = shmstore.ErrEnded
	// ErrNotCounted reports that a read was not counted, so that the chunk will
	// not become free by counts.
	ErrNotCounted = errors.New("objstore: read not counted")

	errInvalid = sentinel.New(sentinel.Invalid, "objstore: invalid argument")
	errClosed  = sentinel.New(sentinel.Closed, "objstore: closed")
)

// HeadError reports that an object does not fit into a FIFO now: chunks are freed
// strictly in order, and the oldest one is in the way.
type HeadError struct {
	Need int    // bytes of the chunk, with its header
	Used uint64 // bytes in use, with padding
	Size int    // bytes of the ring
	// Waiting is what the first caller of those that wait for room needs, in bytes;
	// 0 if nobody waits. Whoever does not wait must not pass it for ever, see
	// PutOptions.Wait.
	Waiting int64

	// Of the oldest chunk:

	Key      string
	ID       uint32
	Reserved bool  // being written
	Touched  bool  // protected by a touch, see package upstream
	Leases   int   // open
	Uses     int64 // issued
	Reads    int64 // counted, of Uses * Readers
	Readers  int
}

// Error names the oldest chunk, and why it stays.
func (e *HeadError) Error() string {
	waiting := ""
	if e.Waiting > 0 {
		waiting = fmt.Sprintf(", and a caller waits for %s", sizes.Text(e.Waiting))
	}
	return fmt.Sprintf("objstore: no room for %s, %s of %s are in use%s: the oldest chunk, id %d of key %q, %s; send the object inline or try again later",
		sizes.Text(e.Need), sizes.Text(e.Used), sizes.Text(e.Size), waiting, e.ID, e.Key, e.reason())
}

// reason is why the oldest chunk can't be freed.
func (e *HeadError) reason() string {
	switch {
	case e.Reserved:
		return "is still being written"
	case e.Touched:
		return "is touched; release the touches"
	case e.Leases > 0:
		return fmt.Sprintf("is leased %d times", e.Leases)
	}
	return fmt.Sprintf("was read %d of %d times", e.Reads, e.Uses*int64(e.Readers))
}

// Unwrap makes errors.Is(err, ErrFull) true.
func (e *HeadError) Unwrap() error { return ErrFull }

// StaleError reports that the chunk of a handle is gone: evicted or cleared, and
// its place used again.
type StaleError struct {
	Address uint64
	ID      uint32
	Found   uint32 // the id that stands at the address now
}

// Error has the handle and the id that is at its address now.
func (e *StaleError) Error() string {
	return fmt.Sprintf("objstore: handle %d:%d is stale: id %d is at its address now; get a new handle from the writer",
		e.Address, e.ID, e.Found)
}

// Unwrap makes errors.Is(err, ErrStale) true.
func (e *StaleError) Unwrap() error { return ErrStale }

// SignatureError reports that a handle does not carry a valid signature for its
// key.
type SignatureError struct {
	Key     string
	Missing bool // there is none at all, or no id that it signs
}

// Error says whether the signature is wrong or missing.
func (e *SignatureError) Error() string {
	if e.Missing {
		return fmt.Sprintf("objstore: handle for key %q has no signature; this vLLM generation requires one", e.Key)
	}
	return fmt.Sprintf("objstore: signature of the handle for key %q is wrong; handles are valid for one key of one segment only", e.Key)
}

// Unwrap makes errors.Is(err, ErrBadSignature) true.
func (e *SignatureError) Unwrap() error { return ErrBadSignature }
