package storetest

import (
	"errors"
)

// Store is a store of objects by key. What is stored are bytes; they are also Python's pickle of
// a bytes object, for stores that want one.
//
// An object that was put, or looked up, without a request is needed until each reader has got it
// as often as it was given out, or a fence passes.
type Store interface {
	// Put stores a value under a key and returns a handle of it. It fails with an error for
	// which Options.Kind returns "exists", "too_large" or "full".
	Put(key string, value []byte) (Handle, error)
	// Lookup returns another handle of the object under a key, or fails with "not_found".
	Lookup(key string) (Handle, error)
	// Get returns what a reader finds under a handle. The reader, from 0 on, counts it.
	Get(reader int, key string, h Handle) ([]byte, error)
	// State returns what is in the store now.
	State() (State, error)
	// Close ends the store, whatever is open, and removes what it made.
	Close() error
}

// Handle leads to an object.
type Handle struct {
	Address, ID uint64
	// Signature is "" in stores without one. With one, a handle that was altered, or comes with
	// another key, must not be accepted.
	Signature string
}

// State is what a store contains.
type State struct{ Objects []Object }

// Object is one that can be found under its key.
type Object struct {
	Key    string
	Handle Handle // Signature is not looked at
	// Value is what a reader would find; nil: not looked at.
	Value []byte
	// Uses is how many handles were given out and not taken back; Reads is how often a reader
	// counted. Both are -1 in stores that don't count.
	Uses, Reads int
}

// Requester is a store whose handles can belong to a request: its objects stay until it ends.
type Requester interface {
	Begin(id string) (Request, error)
}

// Request is open until Rollback, or until Commit and then Finish or Abort.
type Request interface {
	Put(key string, value []byte) (Handle, error)
	Lookup(key string) (Handle, error)
	// Commit reports that the handles were sent.
	Commit() error
	// Rollback: they never will be. What was given out counts as never given out.
	Rollback() error
	// Finish: every reader is done with them.
	Finish() error
	// Abort: readers may still come. The objects stay until they were read, or a fence passes.
	Abort() error
}

// Evicter is a store that can be asked to drop an object.
type Evicter interface {
	// Evict reports whether the object went: not if it is absent, or may be needed.
	Evict(key string) (bool, error)
}

// Freer is a store that drops objects that are not needed, when asked.
type Freer interface{ FreeUnused() error }

// Clearer is a store that can be emptied. It may refuse that while something is open.
type Clearer interface{ Clear() error }

// Fencer is a store that accepts the caller's word that the readers have drained everything that
// was given out before and belongs to no request that is open.
type Fencer interface{ Fence() error }

// Resetter is a store that accepts the caller's word that all readers are new ones. Requests that were
// committed have ended.
type Resetter interface{ ResetReaders() error }

// Adopter is a store that outlives its writer.
type Adopter interface {
	// Crash ends the writer as a kill would, and lets another one take over what it left. It
	// returns how many objects the other one reports as dropped. All requests have ended.
	Crash() (dropped int, err error)
}

// Toucher is a store with vLLM's touch, of 0.12 and later.
type Toucher interface {
	// Touch is the writer's, TouchHandle a reader's, and ReleaseTouches ends all of them.
	Touch(key string) error
	TouchHandle(reader int, key string, h Handle) error
	ReleaseTouches() error
}

// Checker is a store that can check its own structure.
type Checker interface{ CheckStructure() error }

// Errors for stores that have none of their own.
var (
	ErrExists   = errors.New("storetest: the key exists")
	ErrTooLarge = errors.New("storetest: the object is too large")
	ErrFull     = errors.New("storetest: the store is full")
	ErrNotFound = errors.New("storetest: no such key")
	ErrStale    = errors.New("storetest: the object of the handle is gone")
)

func defaultKind(err error) string {
	for kind, e := range map[string]error{
		"exists": ErrExists, "too_large": ErrTooLarge, "full": ErrFull, "not_found": ErrNotFound, "stale": ErrStale,
	} {
		if errors.Is(err, e) {
			return kind
		}
	}
	return "invalid"
}
