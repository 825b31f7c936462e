package objstore

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/ringcache/ringcache/internal/sentinel"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/memory"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmstore"
)

var (
	// ErrKeyExists is wrapped by [shmstore.KeyError]. (ErrExists is about segments.)
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
	// ErrClosed reports that the store was closed.
	ErrClosed = sentinel.New(sentinel.Closed, "objstore: closed")
	// ErrBusy reports that views or reservations are open.
	ErrBusy = segment.ErrBusy
	// ErrInvalid reports that an argument makes no sense. It matches the ErrInvalid of
	// every other package of this module.
	ErrInvalid = sentinel.New(sentinel.Invalid, "objstore: invalid argument")
	// ErrEnded reports that a request takes nothing more: it has ended, or was
	// committed.
	ErrEnded = shmstore.ErrEnded
	// ErrNotCounted reports that a read was not counted, so that the chunk will
	// not become free by counts.
	ErrNotCounted = errors.New("objstore: read not counted")
)

// What stores of both kinds have in common is of package shmstore.
type (
	// Stats are sums over the objects of a store, and counts of those who use it.
	Stats = shmstore.Stats
	// Change reports that the object under a key is there now, or no longer.
	Change = shmstore.Change
)

// Of segments: what Create, Open, Adopt and Prepare can fail with.
var (
	// ErrExists reports that a segment of this name exists already. It is also an
	// fs.ErrExist.
	ErrExists = fs.ErrExist
	// ErrNotExist reports that there is no segment of this name. It is also an
	// fs.ErrNotExist.
	ErrNotExist = fs.ErrNotExist
	// ErrOwned reports that a segment's writer lives.
	ErrOwned = sidecar.ErrOwned
	// ErrForeign reports that a segment has no sidecar, so something else made it.
	ErrForeign = sidecar.ErrForeign
	// ErrUnsafe reports that a segment exists but must not be trusted.
	ErrUnsafe = segment.ErrUnsafe
	// ErrSize reports that a segment has another size than its user expects.
	ErrSize = segment.ErrSize
	// ErrNoSpace reports that the memory for a segment is not there.
	ErrNoSpace = segment.ErrNoSpace
	// ErrMemory reports that memory is not as it was required.
	ErrMemory = memory.ErrMissing
)

// HeadError reports that an object does not fit into a [FIFO] now: chunks are freed
// strictly in order, and the oldest one is in the way.
type HeadError struct {
	Need int    // bytes of the chunk, with its header
	Used uint64 // bytes in use, with padding
	Size int    // bytes of the ring
	// Waiting is what the first caller of those that wait for room needs, in bytes;
	// 0 if nobody waits. Whoever does not wait must not pass it for ever, see
	// PutOptions.Wait.
	Waiting int64
	Head    HeadState
}

// HeadState describes the oldest chunk.
type HeadState struct {
	Key       string
	ID        uint32
	Reserved  bool  // being written
	Protected bool  // touched
	Leases    int   // open
	Uses      int64 // issued
	Reads     int64 // counted, of Uses * Readers
	Readers   int
}

func (h HeadState) String() string {
	switch {
	case h.Reserved:
		return "is still being written"
	case h.Protected:
		return "is touched; release the touches"
	case h.Leases > 0:
		return fmt.Sprintf("is leased %d times", h.Leases)
	}
	return fmt.Sprintf("was read %d of %d times", h.Reads, h.Uses*int64(h.Readers))
}

func (e *HeadError) Error() string {
	waiting := ""
	if e.Waiting > 0 {
		waiting = fmt.Sprintf(", and a caller waits for %d", e.Waiting)
	}
	return fmt.Sprintf("objstore: no room for %d bytes, %d of %d are in use%s: the oldest chunk, id %d of key %q, %s; send the object inline or try again later",
		e.Need, e.Used, e.Size, waiting, e.Head.ID, e.Head.Key, e.Head)
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

func (e *StaleError) Error() string {
	return fmt.Sprintf("objstore: handle %d:%d is stale: id %d is at its address now; get a new handle from the writer", e.Address, e.ID, e.Found)
}

// Unwrap makes errors.Is(err, ErrStale) true.
func (e *StaleError) Unwrap() error { return ErrStale }

// UpstreamText is the text of vLLM's ValueError for the same failure.
func (e *StaleError) UpstreamText() string {
	return fmt.Sprintf("Data for address:id '%d:%d' has been modified or is invalid.", e.Address, e.ID)
}

// SignatureError reports that a handle does not carry a valid signature for its
// key.
type SignatureError struct {
	Key     string
	Missing bool // there is none at all
}

func (e *SignatureError) Error() string {
	if e.Missing {
		return fmt.Sprintf("objstore: handle for key %q has no signature; this vLLM generation requires one", e.Key)
	}
	return fmt.Sprintf("objstore: signature of the handle for key %q is wrong; handles are valid for one key of one segment only", e.Key)
}

// Unwrap makes errors.Is(err, ErrBadSignature) true.
func (e *SignatureError) Unwrap() error { return ErrBadSignature }

// UpstreamText is the text of vLLM's ValueError for the same failure.
func (e *SignatureError) UpstreamText() string {
	if e.Missing {
		return "Missing SHM handle signature for cache key."
	}
	return "Invalid SHM handle signature for cache key."
}
