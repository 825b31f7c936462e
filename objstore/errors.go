package objstore

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/ringcache/ringcache/internal/sentinel"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/memory"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmring/sidecar"
)

var (
	// ErrKeyExists is wrapped by [KeyExistsError]. (ErrExists is about segments.)
	ErrKeyExists = errors.New("objstore: key exists")
	// ErrNotFound is wrapped by [KeyNotFoundError].
	ErrNotFound = errors.New("objstore: no such key")
	// ErrTooLarge is wrapped by [TooLargeError].
	ErrTooLarge = shmring.ErrTooLarge
	// ErrFull is wrapped by [FullError].
	ErrFull = shmring.ErrFull
	// ErrStale is wrapped by [StaleError].
	ErrStale = errors.New("objstore: stale handle")
	// ErrBadSignature is wrapped by [SignatureError].
	ErrBadSignature = errors.New("objstore: bad handle signature")
	// ErrCorrupt is wrapped by [CorruptError].
	ErrCorrupt = shmring.ErrCorrupt
	// ErrClosed says that the store was closed.
	ErrClosed = segment.ErrClosed
	// ErrBusy says that views or reservations are open.
	ErrBusy = segment.ErrBusy
	// ErrInvalid says that an argument makes no sense. It matches the ErrInvalid of
	// every other package of this module.
	ErrInvalid = shmring.ErrInvalid
	// ErrEnded says that a request takes nothing more: it has ended, or was
	// committed.
	ErrEnded = errors.New("objstore: request is not open")
	// ErrNotCounted says that a read was not counted, so that the chunk will
	// not become free by counts.
	ErrNotCounted = errors.New("objstore: read not counted")
)

// Of segments: what Create, Open, Adopt and Prepare can fail with.
var (
	// ErrExists says that a segment of this name exists already. It is also an
	// fs.ErrExist.
	ErrExists = segment.ErrExists
	// ErrNotExist says that there is no segment of this name. It is also an
	// fs.ErrNotExist.
	ErrNotExist = segment.ErrNotExist
	// ErrOwned says that a segment's writer lives.
	ErrOwned = sidecar.ErrOwned
	// ErrForeign says that a segment has no sidecar, so something else made it.
	ErrForeign = sidecar.ErrForeign
	// ErrUnsafe says that a segment exists but must not be trusted.
	ErrUnsafe = segment.ErrUnsafe
	// ErrSize is wrapped by [SizeError].
	ErrSize = segment.ErrSize
	// ErrNoSpace says that the memory for a segment is not there, see [SpaceError].
	ErrNoSpace = segment.ErrNoSpace
	// ErrMemory says that memory is not as it was required.
	ErrMemory = memory.ErrMissing
)

// SizeError says that a segment and its user disagree about the ring.
type SizeError = segment.SizeError

// SpaceError says which limit a segment does not fit.
type SpaceError = segment.SpaceError

// KeyExistsError says that a key is in the store, or reserved, already.
type KeyExistsError struct {
	Key      string
	Reserved bool // by another reservation that is still open
}

func (e *KeyExistsError) Error() string {
	if e.Reserved {
		return fmt.Sprintf("objstore: key %q is being written; wait for it or use another key", e.Key)
	}
	return fmt.Sprintf("objstore: key %q exists; use Lookup for another use of it", e.Key)
}

// Unwrap makes errors.Is(err, ErrKeyExists) true.
func (e *KeyExistsError) Unwrap() error { return ErrKeyExists }

// UpstreamText is the text of vLLM's ValueError for the same failure.
func (e *KeyExistsError) UpstreamText() string {
	return fmt.Sprintf("Key '%s' already exists in the storage.", e.Key)
}

// KeyNotFoundError says that a key is not in the store: it was never put, or
// evicted, or cleared.
type KeyNotFoundError struct{ Key string }

func (e *KeyNotFoundError) Error() string {
	return fmt.Sprintf("objstore: key %q is not in the store; put it again", e.Key)
}

// Unwrap makes errors.Is(err, ErrNotFound) true.
func (e *KeyNotFoundError) Unwrap() error { return ErrNotFound }

// UpstreamText is the text of Python's KeyError: the key as Python shows it.
// Keys with quotes, backslashes or control characters are shown in Go's way.
func (e *KeyNotFoundError) UpstreamText() string {
	if strings.ContainsFunc(e.Key, func(r rune) bool { return r == '\'' || r == '\\' || r < ' ' }) {
		return strconv.Quote(e.Key)
	}
	return "'" + e.Key + "'"
}

// TooLargeError says that an object is above the limit for one object, or can
// never fit into the ring. Waiting does not help.
type TooLargeError struct {
	Size  int  // bytes of the object with counter and metadata, without the chunk header
	Limit int  // Options.MaxObjectSize, what an empty ring has room for, or what a chunk can be
	Ring  bool // it is the ring that is too small
	// Format says that the size does not fit the chunk header, an int32.
	Format bool
	// Tenant is not empty if it is its quota that is too small; sizes are rounded up.
	Tenant string
}

func (e *TooLargeError) Error() string {
	if e.Tenant != "" {
		return fmt.Sprintf("objstore: object of %d bytes is above the quota of %d of tenant %q; send it inline or raise Options.Quotas", e.Size, e.Limit, e.Tenant)
	}
	if e.Format {
		return fmt.Sprintf("objstore: object of %d bytes can't be described by a chunk header, at most %d can; send it inline or split it", e.Size, e.Limit)
	}
	if e.Ring {
		return fmt.Sprintf("objstore: object of %d bytes can never fit, an empty ring has room for %d; send it inline or raise RingSize (vLLM: mm_processor_cache_gb)", e.Size, e.Limit)
	}
	return fmt.Sprintf("objstore: object of %d bytes is above the limit of %d; send it inline or raise MaxObjectSize (vLLM: mm_shm_cache_max_object_size_mb)", e.Size, e.Limit)
}

// Unwrap makes errors.Is(err, ErrTooLarge) true.
func (e *TooLargeError) Unwrap() error { return ErrTooLarge }

// UpstreamText is the text of vLLM's error for the same failure: a ValueError,
// or, where the ring is too small, the MemoryError of a full ring. What no header
// can describe is an OverflowError there, whose text depends on the Python.
func (e *TooLargeError) UpstreamText() string {
	if e.Format {
		return ""
	}
	if e.Ring {
		return (*shmring.FullError)(nil).UpstreamText()
	}
	return fmt.Sprintf("Serialized object size (%d bytes) exceeds max object size (%d bytes)", e.Size, e.Limit)
}

// FullError says that an object does not fit now, and what is in the way: with
// FIFO the oldest chunk, since chunks are freed strictly in order; with Pool all
// that is in use.
type FullError struct {
	Need int    // bytes of the chunk, with its header
	Used uint64 // bytes in use, with padding
	Size int    // bytes of the ring
	// Waiting is what the first caller of those that wait for room needs, in bytes;
	// 0 if nobody waits. Who does not wait must not pass it for ever, see
	// Writer.PutContext.
	Waiting int64

	Head    *HeadState // FIFO
	Blocked *Blocked   // Pool
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

func (e *FullError) Error() string {
	waiting := ""
	if e.Waiting > 0 {
		waiting = fmt.Sprintf(", and a caller waits for %d", e.Waiting)
	}
	if e.Blocked != nil {
		return fmt.Sprintf("objstore: no room for %d bytes, %d of %d are in use%s: %v; send the object inline, wait with PutContext, or end requests that are done",
			e.Need, e.Used, e.Size, waiting, e.Blocked)
	}
	return fmt.Sprintf("objstore: no room for %d bytes, %d of %d are in use%s: the oldest chunk, id %d of key %q, %s; send the object inline or try again later",
		e.Need, e.Used, e.Size, waiting, e.Head.ID, e.Head.Key, e.Head)
}

// Unwrap makes errors.Is(err, ErrFull) true.
func (e *FullError) Unwrap() error { return ErrFull }

// UpstreamText is the text of vLLM's MemoryError for the same failure.
func (e *FullError) UpstreamText() string { return (*shmring.FullError)(nil).UpstreamText() }

// StaleError says that the chunk of a handle is gone: evicted or cleared, and
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

// SignatureError says that a handle does not carry a valid signature for its
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

// CorruptError says that the bytes of a chunk can't be right.
type CorruptError struct {
	Segment string
	Address uint64
	ID      uint32
	Err     error // what was found
}

func (e *CorruptError) Error() string {
	if gone := (*segment.FaultError)(nil); errors.As(e.Err, &gone) {
		return fmt.Sprintf("objstore: segment %s: %v", e.Segment, e.Err)
	}
	return fmt.Sprintf("objstore: segment %s: chunk %d:%d can't be read; something else wrote to the segment, or the generation is wrong: %v", e.Segment, e.Address, e.ID, e.Err)
}

// Unwrap makes the cause visible to errors.Is and errors.As.
func (e *CorruptError) Unwrap() error { return e.Err }

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// UpstreamText is the text of vLLM's error, where the cause has one.
func (e *CorruptError) UpstreamText() string { return sentinel.UpstreamText(e.Err) }
