package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/ringcache/ringcache/internal/sentinel"
	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/lrusync/upstream"
	"github.com/ringcache/ringcache/mmhash"
	"github.com/ringcache/ringcache/objstore"
	storesteps "github.com/ringcache/ringcache/objstore/upstream"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmstore"
	"github.com/ringcache/ringcache/tier"
)

// errInvalid is the kind "invalid" for errors that arise here.
var errInvalid = errors.New("invalid request")

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: %w", errInvalid, fmt.Errorf(format, args...))
}

// errClosed is the kind "closed" for stores that were closed here.
var errClosed = sentinel.New(sentinel.Closed, "agent: closed")

// kinds maps errors to their stable names; the first match wins, so the more
// telling one of a joined error comes first.
var kinds = []struct {
	err  error
	kind string
}{
	{tier.ErrCorrupt, "corrupt"}, // also a miss
	{tier.ErrNotFound, "not_found"},
	{tier.ErrPending, "pending"},
	{tier.ErrExists, "exists"},
	{tier.ErrFull, "full"},
	{tier.ErrTooLarge, "too_large"},
	{tier.ErrInUse, "in_use"},
	{tier.ErrUnavailable, "unavailable"},
	{tier.ErrEnded, "ended"},
	{objstore.ErrKeyExists, "exists"},
	{fs.ErrExist, "exists_segment"},
	{segment.ErrOwned, "exists_segment"},
	{segment.ErrForeign, "unsupported"},
	{segment.ErrNoSpace, "no_space"},
	{objstore.ErrNotFound, "not_found"},
	{fs.ErrNotExist, "not_found"},
	{objstore.ErrBadSignature, "bad_signature"},
	{serde.ErrBadSignature, "bad_signature"},
	{objstore.ErrStale, "stale"},
	{objstore.ErrTooLarge, "too_large"},
	{lrusync.ErrTooLarge, "too_large"},
	{upstream.ErrMiss, "miss"},
	{objstore.ErrFull, "full"},
	{fs.ErrClosed, "closed"},
	{pycompat.ErrUnknownVersion, "unsupported"},
	{errors.ErrUnsupported, "unsupported"},
	{segment.ErrUnsafe, "unsupported"},
	{serde.ErrUnsupported, "unsupported"},
	{mmhash.ErrUnsupported, "unsupported"},
	{errUnsupported, "unsupported"},
	{objstore.ErrCorrupt, "corrupt"},
	{serde.ErrCorrupt, "corrupt"},
	{context.DeadlineExceeded, "timeout"},
	{objstore.ErrNotCounted, "timeout"},
}

// errUnsupported is the kind "unsupported" for operations of the protocol that an
// object can't do.
var errUnsupported = errors.New("unsupported")

func unsupportedf(format string, args ...any) error {
	return fmt.Errorf("%w: %w", errUnsupported, fmt.Errorf(format, args...))
}

func kindOf(err error) string {
	// Upstream reports the same of what does not fit now and of what never will.
	var chunk *shmring.TooLargeError
	var object *shmstore.TooLargeError
	if errors.As(err, &chunk) || errors.As(err, &object) && object.Ring {
		return "full"
	}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return k.kind
		}
	}
	return "invalid"
}

func describeError(err error) reply {
	out := reply{"kind": kindOf(err), "text": err.Error()}
	if text := storesteps.Text(err); text != "" {
		out["upstream"] = text
	}
	return out
}
