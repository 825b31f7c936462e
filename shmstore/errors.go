package shmstore

import (
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/sentinel"
	"github.com/ringcache/ringcache/internal/sizes"
	"github.com/ringcache/ringcache/shmring"
)

var (
	// ErrKeyExists is wrapped by a [KeyError]: the key is in the store, or reserved, already.
	ErrKeyExists = errors.New("shmstore: key exists")
	// ErrNotFound is wrapped by a [KeyError]: the key is not in the store. It was never put,
	// or evicted, or removed.
	ErrNotFound = errors.New("shmstore: no such key")
	// ErrStale reports that the payload of a handle is gone: evicted or removed, and its
	// place perhaps used again.
	ErrStale = errors.New("shmstore: stale handle")
	// ErrEnded reports that a request takes nothing more: it has ended, or was
	// committed.
	ErrEnded = errors.New("shmstore: request is not open")

	errInvalid = sentinel.New(sentinel.Invalid, "shmstore: invalid argument")
	errClosed  = sentinel.New(sentinel.Closed, "shmstore: closed")
)

// KeyError reports that a key is there and should not be, or the other way round.
type KeyError struct {
	Key      string
	Err      error // ErrKeyExists or ErrNotFound
	Reserved bool  // the key exists in a reservation that is still open, whatever Err is
}

// Error names the key, and what to do.
func (e *KeyError) Error() string {
	switch {
	case e.Reserved:
		return fmt.Sprintf("shmstore: key %q is being written; wait for it or use another key", e.Key)
	case e.Err == ErrKeyExists:
		return fmt.Sprintf("shmstore: key %q exists; use Lookup for another use of it", e.Key)
	}
	return fmt.Sprintf("shmstore: key %q is not in the store; put it again", e.Key)
}

// Unwrap returns Err.
func (e *KeyError) Unwrap() error { return e.Err }

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

// Error names the limit, and the option that moves it.
func (e *TooLargeError) Error() string {
	size, limit := sizes.Above(e.Size, e.Limit)
	switch {
	case e.Tenant != "":
		return fmt.Sprintf("shmstore: object of %s is above the quota of %s of tenant %q; send it inline or raise Options.Quotas", size, limit, e.Tenant)
	case e.Format:
		return fmt.Sprintf("shmstore: object of %s can't be described by a chunk header, at most %s can; send it inline or split it", size, limit)
	case e.Ring:
		return fmt.Sprintf("shmstore: object of %s can never fit, an empty store has room for %s; send it inline or make the store larger", size, limit)
	}
	return fmt.Sprintf("shmstore: object of %s is above the limit of %s; send it inline or raise MaxObjectSize", size, limit)
}

// Unwrap makes errors.Is(err, shmring.ErrTooLarge) true.
func (e *TooLargeError) Unwrap() error { return shmring.ErrTooLarge }

// FullError reports that an object does not fit now, and what is in the way: of the store, or of
// what its tenant may have.
type FullError struct {
	Need int    // bytes of the chunk, with its header
	Used uint64 // bytes in use, with padding; of a tenant those that can't be evicted now
	Size int    // bytes of the store, or the tenant's quota
	// Tenant is not empty if its quota is in the way. The fields below are 0 then.
	Tenant string
	// Waiting is what the first caller of those that wait for room needs, in bytes;
	// 0 if nobody waits. Whoever does not wait must not pass it for ever, see
	// PutOptions.Wait.
	Waiting int64
	// MaxObjects, if not 0, is Options.MaxObjects of the segment, and as many are in use, as that counts.
	MaxObjects int

	// What the bytes of the store are taken by:

	Free        int64 // in holes
	LargestHole int64
	Reserved    int64 // being written
	Leased      int64 // by open requests, or pinned
	Quarantined int64 // aborted, and maybe still to be read: a Fence proves more
	Viewed      int64 // looked at in place by readers
	Evictable   int64 // between others, so that they make no run that is long enough
}

// Error says who has the memory, by what would free it.
func (e *FullError) Error() string {
	if e.Tenant != "" {
		return fmt.Sprintf("shmstore: tenant %q has %s in use and wants %s more, its quota is %s; send the object inline, end requests that are done, or raise Options.Quotas",
			e.Tenant, sizes.Text(e.Used), sizes.Text(e.Need), sizes.Text(e.Size))
	}
	waiting := ""
	if e.Waiting > 0 {
		waiting = fmt.Sprintf(", and a caller waits for %s", sizes.Text(e.Waiting))
	}
	taken := fmt.Sprintf("%s leased, %s in quarantine, %s being written, %s viewed by readers, %s evictable between them, %s free with the largest hole of %s",
		sizes.Text(e.Leased), sizes.Text(e.Quarantined), sizes.Text(e.Reserved), sizes.Text(e.Viewed), sizes.Text(e.Evictable), sizes.Text(e.Free), sizes.Text(e.LargestHole))
	if e.MaxObjects > 0 {
		taken = fmt.Sprintf("%d objects are the most that the sidecar has room for, where one counts once more for each KiB of its key and note, and all are in use; raise MaxObjects", e.MaxObjects)
	}
	return fmt.Sprintf("shmstore: no room for %s, %s of %s are in use%s: %s; send the object inline, wait (PutOptions.Wait), or end requests that are done",
		sizes.Text(e.Need), sizes.Text(e.Used), sizes.Text(e.Size), waiting, taken)
}

// Unwrap makes errors.Is(err, shmring.ErrFull) true.
func (e *FullError) Unwrap() error { return shmring.ErrFull }

// staleError is an [ErrStale]: found stands in front of the payload of h now.
func staleError(h Handle, found uint32) error {
	return fmt.Errorf("%w: of id %d at offset %d, where id %d is now; get a new handle from the writer", ErrStale, h.ID, h.Offset, found)
}

// CorruptError reports that the bytes of a segment can't be right.
type CorruptError struct {
	Segment string
	Address uint64
	ID      uint32
	Err     error // what was found
}

// Error names the segment and the chunk.
func (e *CorruptError) Error() string {
	if errors.Is(e.Err, fault.ErrFault) {
		return fmt.Sprintf("shmstore: segment %s: %v", e.Segment, e.Err)
	}
	return fmt.Sprintf("shmstore: segment %s: chunk %d:%d can't be read; something else wrote to the segment: %v", e.Segment, e.Address, e.ID, e.Err)
}

// Unwrap makes errors.Is true of [shmring.ErrCorrupt] and of the cause.
func (e *CorruptError) Unwrap() []error { return []error{shmring.ErrCorrupt, e.Err} }
