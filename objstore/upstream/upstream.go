// Package upstream contains the steps of vLLM's SingleWriterShmObjectStorage
// (vllm/distributed/device_communicators/shm_object_storage.py, 0.11.0 to 0.33.0) one by
// one, on a store of package objstore. It is for differential tests and for the agent; a
// frontend uses requests, objstore.Request.
//
// A handle that a step returns belongs to no request. In a FIFO its object is free when
// the readers' counts are complete, as in vLLM; in a pool it is in quarantine from the
// start, until the counts are complete or a fence passes. So the handle must be sent
// before the next fence is taken.
package upstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ringcache/ringcache/internal/sentinel"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/objstore/internal/door"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmstore"
)

// Steps are what vLLM's protocol does with a storage, besides what every
// objstore.Store does: is_cached is Cached, and clear is Clear.
type Steps interface {
	objstore.Store

	// Put stores a value under a key and counts its first use. Errors are those of
	// objstore.Request.Put. The key may be empty, as in vLLM.
	Put(key string, v serde.Value, o objstore.PutOptions) (serde.Address, error)
	// Reserve is Put in two steps: the use is the one of the reservation's Commit.
	Reserve(key string, v serde.Value, o objstore.PutOptions) (*objstore.Reservation, error)
	// GetCached returns a handle of the object under a key and counts one use of it:
	// every reader has to get it once. It ends the touch of the key. It fails with
	// objstore.ErrNotFound.
	GetCached(key string) (serde.Address, error)

	// Touch announces that the key will be looked up later in the same request, and must
	// not be evicted before. What it does depends on the generation: before 0.12
	// nothing; up to 0.31 it counts a use; from 0.32 on it protects the object until
	// GetCached, Untouch or ReleaseTouches, by anyone. An absent key is no error.
	//
	// As in vLLM, protection belongs to the store and not to a request, so it only
	// holds for callers that make one request at a time.
	Touch(key string) error
	// TouchHandle is Touch for a writer that counts (Options.Lock): it does what
	// objstore.Reader.Touch does, and verifies as Verify does.
	TouchHandle(ctx context.Context, key string, h serde.Address) error
	// Untouch ends the protection of one key, and ReleaseTouches that of all.
	Untouch(key string)
	ReleaseTouches()

	// FreeUnused frees chunks, oldest first, whose uses were all read by every reader,
	// until twice MaxObjectSize bytes were freed or one is still needed. It returns the
	// ids. In a pool it evicts everything that nobody needs.
	FreeUnused() ([]uint32, error)

	// Signature returns the signature of the current object under a key without counting
	// a use. It is zero in generations without signatures.
	Signature(key string) (serde.Signature, error)
	// Get returns a view of whatever object is at a handle. As vLLM's writer, it compares
	// the id and neither verifies the signature nor looks at the key; it counts the read
	// if the writer has a lock (0.32.0 and 0.33.0). For handles that came from outside see
	// Verify.
	Get(h serde.Address) (*objstore.View, error)
}

// Options of the steps.
type Options struct {
	// Lock makes the steps count the reads of the writer like a reader's, as a vLLM storage
	// that was built with a lock does.
	Lock objstore.Locker
	// LockTimeout bounds every wait for Lock; 0 or less is 10 s.
	LockTimeout time.Duration
}

// New returns the steps of a store.
func New(s objstore.Store, o Options) Steps { return door.Steps(s, o.Lock, o.LockTimeout).(Steps) }

// Text returns the text of vLLM's own error for the same failure, or "" where vLLM has
// none: sentinel.UpstreamText, and the errors of stores.
func Text(err error) string {
	var (
		key       *shmstore.KeyError
		large     *shmstore.TooLargeError
		stale     *objstore.StaleError
		signature *objstore.SignatureError
	)
	switch {
	case errors.As(err, &key) && key.Err == objstore.ErrKeyExists:
		return fmt.Sprintf("Key '%s' already exists in the storage.", key.Key)
	case key != nil:
		return quoted(key.Key)
	case errors.As(err, &stale):
		return fmt.Sprintf("Data for address:id '%d:%d' has been modified or is invalid.", stale.Address, stale.ID)
	case errors.As(err, &signature) && signature.Missing:
		return "Missing SHM handle signature for cache key."
	case errors.As(err, &signature):
		return "Invalid SHM handle signature for cache key."
	case errors.As(err, &large) && large.Format:
		return "" // an OverflowError there, whose text depends on the Python
	case errors.As(err, &large) && !large.Ring:
		return fmt.Sprintf("Serialized object size (%d bytes) exceeds max object size (%d bytes)",
			large.Size, large.Limit)
	case errors.Is(err, shmring.ErrFull), errors.Is(err, shmring.ErrTooLarge): // a MemoryError for both
		return "Not enough space in the data buffer, try calling free_buf() to free up space"
	}
	return sentinel.UpstreamText(err)
}

// quoted is a key as the text of Python's KeyError shows it. Keys with quotes,
// backslashes or control characters are shown in Go's way.
func quoted(key string) string {
	if strings.ContainsFunc(key, func(r rune) bool { return r == '\'' || r == '\\' || r < ' ' }) {
		return strconv.Quote(key)
	}
	return "'" + key + "'"
}
