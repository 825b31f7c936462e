package shmstore

import (
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/sentinel"
	"github.com/ringcache/ringcache/shmring"
)

var (
	// ErrKeyExists is wrapped by [KeyExistsError]. (ErrExists is about segments.)
	ErrKeyExists = errors.New("shmstore: key exists")
	// ErrNotFound is wrapped by [KeyNotFoundError].
	ErrNotFound = errors.New("shmstore: no such key")
	// ErrStale is wrapped by [StaleError].
	ErrStale  = errors.New("shmstore: stale handle")
	errClosed = sentinel.New(sentinel.Closed, "shmstore: closed")
	// errInvalid reports that an argument makes no sense, as an fs.ErrInvalid.
	errInvalid = sentinel.New(sentinel.Invalid, "shmstore: invalid argument")
	// ErrEnded reports that a request takes nothing more: it has ended, or was
	// committed.
	ErrEnded = errors.New("shmstore: request is not open")
)

// KeyExistsError reports that a key is in the store, or reserved, already.
type KeyExistsError struct {
	Key      string
	Reserved bool // by a reservation that is still open
}

func (e *KeyExistsError) Error() string {
	if e.Reserved {
		return fmt.Sprintf("shmstore: key %q is being written; wait for it or use another key", e.Key)
	}
	return fmt.Sprintf("shmstore: key %q exists; use Lookup for another use of it", e.Key)
}

// Unwrap makes errors.Is(err, ErrKeyExists) true.
func (e *KeyExistsError) Unwrap() error { return ErrKeyExists }

// KeyNotFoundError reports that a key is not in the store: it was never put, or
// evicted, or removed.
type KeyNotFoundError struct{ Key string }

func (e *KeyNotFoundError) Error() string {
	return fmt.Sprintf("shmstore: key %q is not in the store; put it again", e.Key)
}

// Unwrap makes errors.Is(err, ErrNotFound) true.
func (e *KeyNotFoundError) Unwrap() error { return ErrNotFound }

// TooLargeError reports that an object is above the limit for one object, or can
// never fit. Waiting does not help.
type TooLargeError struct {
	Size  int  // bytes of the payload
	Limit int  // MaxObjectSize, what an empty store has room for, or what a chunk can be
	Ring  bool // it is the store that is too small
	// Format reports that the size does not fit the chunk header, an int32.
	Format bool
	// Tenant is not empty if it is its quota that is too small; sizes are rounded up.
	Tenant string
}

func (e *TooLargeError) Error() string {
	switch {
	case e.Tenant != "":
		return fmt.Sprintf("shmstore: object of %d bytes is above the quota of %d of tenant %q; send it inline or raise Options.Quotas", e.Size, e.Limit, e.Tenant)
	case e.Format:
		return fmt.Sprintf("shmstore: object of %d bytes can't be described by a chunk header, at most %d can; send it inline or split it", e.Size, e.Limit)
	case e.Ring:
		return fmt.Sprintf("shmstore: object of %d bytes can never fit, an empty store has room for %d; send it inline or make the store larger", e.Size, e.Limit)
	}
	return fmt.Sprintf("shmstore: object of %d bytes is above the limit of %d; send it inline or raise MaxObjectSize", e.Size, e.Limit)
}

// Unwrap makes errors.Is(err, shmring.ErrTooLarge) true.
func (e *TooLargeError) Unwrap() error { return shmring.ErrTooLarge }

// FullError reports that an object does not fit now, and what is in the way.
type FullError struct {
	Need int    // bytes of the chunk, with its header
	Used uint64 // bytes in use, with padding
	Size int    // bytes of the store
	// Waiting is what the first caller of those that wait for room needs, in bytes;
	// 0 if nobody waits. Whoever does not wait must not pass it for ever, see
	// PutOptions.Wait.
	Waiting int64
	Blocked Blocked
}

func (e *FullError) Error() string {
	waiting := ""
	if e.Waiting > 0 {
		waiting = fmt.Sprintf(", and a caller waits for %d", e.Waiting)
	}
	return fmt.Sprintf("shmstore: no room for %d bytes, %d of %d are in use%s: %v; send the object inline, wait (PutOptions.Wait), or end requests that are done",
		e.Need, e.Used, e.Size, waiting, e.Blocked)
}

// Unwrap makes errors.Is(err, shmring.ErrFull) true.
func (e *FullError) Unwrap() error { return shmring.ErrFull }

// Blocked is what the bytes of a store are taken by, when there is no room.
type Blocked struct {
	Free        int64 // in holes
	LargestHole int64
	Reserved    int64 // being written
	Leased      int64 // by open requests, or pinned
	Quarantined int64 // aborted, and maybe still to be read: a Fence proves more
	Viewed      int64 // looked at in place by readers
	Evictable   int64 // between others, so that they make no run that is long enough
	MaxObjects  int   // not 0: so many objects are the most
}

func (b Blocked) String() string {
	if b.MaxObjects > 0 {
		return fmt.Sprintf("%d objects are the most that the sidecar has room for, and all are in use; raise MaxObjects", b.MaxObjects)
	}
	return fmt.Sprintf("%d leased, %d in quarantine, %d being written, %d viewed by readers, %d evictable between them, %d free with the largest hole of %d",
		b.Leased, b.Quarantined, b.Reserved, b.Viewed, b.Evictable, b.Free, b.LargestHole)
}

// QuotaError reports that a tenant may not have more bytes. It is an [shmring.ErrFull].
type QuotaError struct {
	Tenant string
	Need   int64 // bytes of the chunk, rounded up
	Used   int64 // bytes of the tenant that can't be evicted now
	Quota  int64
}

func (e *QuotaError) Error() string {
	return fmt.Sprintf("shmstore: tenant %q has %d bytes in use and wants %d more, its quota is %d; send the object inline, end requests that are done, or raise Options.Quotas",
		e.Tenant, e.Used, e.Need, e.Quota)
}

// Unwrap makes errors.Is(err, shmring.ErrFull) true.
func (e *QuotaError) Unwrap() error { return shmring.ErrFull }

// StaleError reports that the payload of a handle is gone: evicted or removed, and
// its place used again.
type StaleError struct {
	Handle Handle
	Found  uint32 // the id that stands in front of the payload now
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("shmstore: the handle of id %d at offset %d is stale: id %d is there now; get a new handle from the writer", e.Handle.ID, e.Handle.Offset, e.Found)
}

// Unwrap makes errors.Is(err, ErrStale) true.
func (e *StaleError) Unwrap() error { return ErrStale }

// CorruptError reports that the bytes of a segment can't be right.
type CorruptError struct {
	Segment string
	Address uint64
	ID      uint32
	Err     error // what was found
}

func (e *CorruptError) Error() string {
	if errors.Is(e.Err, fault.ErrFault) {
		return fmt.Sprintf("shmstore: segment %s: %v", e.Segment, e.Err)
	}
	return fmt.Sprintf("shmstore: segment %s: chunk %d:%d can't be read; something else wrote to the segment: %v", e.Segment, e.Address, e.ID, e.Err)
}

// Unwrap makes the cause visible to errors.Is and errors.As.
func (e *CorruptError) Unwrap() error { return e.Err }

// Is makes errors.Is(err, shmring.ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == shmring.ErrCorrupt }
