package memory

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/leasetable"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmstore"
	"github.com/ringcache/ringcache/tier"
)

// objectError is an answer about one object. Its text is made only if somebody reads it: a miss is no
// rare thing.
type objectError struct {
	key   tier.Key
	kind  error // of package tier, or fs.ErrClosed, or nil for any other
	cause error // may be nil
}

func (e *objectError) Error() string {
	switch {
	case e.kind != nil && errors.As(e.cause, new(*shmstore.KeyError)):
		return fmt.Sprintf("memory: object %v: %v", e.key, e.kind) // the cause has the same key, as the store knows it
	case e.kind != nil && errors.Is(e.cause, e.kind):
		return fmt.Sprintf("memory: object %v: %v", e.key, e.cause)
	case e.cause == nil:
		return fmt.Sprintf("memory: object %v: %v", e.key, e.kind)
	case e.kind == nil:
		return fmt.Sprintf("memory: object %v: %v", e.key, e.cause)
	}
	return fmt.Sprintf("memory: object %v: %v: %v", e.key, e.kind, e.cause)
}

func (e *objectError) Unwrap() []error {
	var all []error
	for _, err := range []error{e.kind, e.cause} {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// answer makes an error of the store one of package tier.
func answer(k tier.Key, err error) error {
	if err == nil {
		return nil
	}
	return &objectError{key: k, kind: kindOf(err), cause: err}
}

func kindOf(err error) error {
	key := (*shmstore.KeyError)(nil)
	switch {
	case errors.As(err, &key) && key.Reserved:
		return tier.ErrPending
	case errors.Is(err, shmstore.ErrNotFound), errors.Is(err, shmstore.ErrStale):
		return tier.ErrNotFound
	case errors.Is(err, shmstore.ErrKeyExists):
		return tier.ErrExists
	case errors.Is(err, shmring.ErrTooLarge):
		return tier.ErrTooLarge
	case errors.Is(err, shmring.ErrFull), errors.Is(err, leasetable.ErrFull):
		return tier.ErrFull
	case errors.Is(err, fs.ErrClosed):
		return nil // the cause is
	case errors.Is(err, segment.ErrBusy):
		return tier.ErrInUse
	case errors.Is(err, shmstore.ErrEnded):
		return tier.ErrEnded
	case errors.Is(err, shmring.ErrCorrupt), errors.Is(err, fault.ErrFault):
		return tier.ErrUnavailable // something cut the segment short
	}
	return nil
}

func closedError(name string) error {
	return fmt.Errorf("memory: the level of segment %s is closed: %w", name, fs.ErrClosed)
}
