package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ringcache/ringcache/tier"
)

const (
	maxClears  = 64  // spaces that wait to be cleared
	clearBatch = 256 // objects that are deleted in one call
)

// clearer has the spaces whose objects are to be deleted in the background, one after the other.
// Guarded by the lock of the registry.
type clearer struct {
	waiting []spaces
	running bool
}

// spaces are one space, or all that have a prefix.
type spaces struct {
	text   string
	prefix bool
}

func (s spaces) has(space string) bool {
	return space == s.text || s.prefix && strings.HasPrefix(space, s.text)
}

// add adds spaces. It reports whether there is room for them, and whether the caller has to start a run.
func (l *clearer) add(more spaces) (ok, start bool) {
	for _, s := range l.waiting {
		if s == more || s.prefix && s.has(more.text) {
			return true, false
		}
	}
	if more.prefix {
		l.waiting = slices.DeleteFunc(l.waiting, func(s spaces) bool { return more.has(s.text) })
	}
	if len(l.waiting) >= maxClears {
		return false, false
	}
	l.waiting = append(l.waiting, more)
	start = !l.running
	l.running = true
	return true, start
}

// next returns the next spaces, and false when there are none.
func (l *clearer) next() (spaces, bool) {
	if len(l.waiting) == 0 {
		l.running = false
		return spaces{}, false
	}
	next := l.waiting[0]
	l.waiting = l.waiting[1:]
	return next, true
}

// Clear deletes the objects of a space, or of all spaces if it is empty, in the background, but what
// leases have. The errors are ErrLimit if many spaces wait to be cleared, and those of Pin.
func (u *Session) Clear(space string) error { return u.clear(spaces{space, space == ""}) }

// ClearPrefix is Clear for all spaces that begin with a text.
func (u *Session) ClearPrefix(prefix string) error { return u.clear(spaces{prefix, true}) }

func (u *Session) clear(which spaces) error {
	if _, err := u.begin(""); err != nil {
		return err
	}
	defer u.s.request.Unlock()
	return u.s.registry.clear(which, "session", u.s.id(), "pid", u.s.client.PID())
}

// ClearPrefix is that of a Session, for who operates the daemon.
func (r *Registry) ClearPrefix(prefix string) error {
	return r.clear(spaces{prefix, true}, "session", "operator")
}

func (r *Registry) clear(which spaces, who ...any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrClosed
	}
	ok, start := r.clearer.add(which)
	if !ok {
		return fmt.Errorf("%w: many spaces are being cleared already; ask again when they are", ErrLimit)
	}
	r.clearing.Info(r.log, "objects are being deleted, as a client wants",
		append([]any{"space", which.text}, who...)...)
	if start {
		r.background.Go(func() {
			for which, more := r.nextToClear(); more; which, more = r.nextToClear() {
				r.clearSpaces(which)
			}
		})
	}
	return nil
}

// nextToClear is next of the clearer, under the lock.
func (r *Registry) nextToClear() (spaces, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.clearer.next()
}

// clearSpaces deletes what is there of spaces now, but what leases have.
func (r *Registry) clearSpaces(which spaces) {
	ctx := r.ending
	var keys []tier.Key
	var deleted, kept, failed int
	var last error
	flush := func() {
		for _, err := range r.store.Delete(ctx, keys) {
			switch {
			case err == nil:
				deleted++
			case errors.Is(err, tier.ErrNotFound):
			case errors.Is(err, tier.ErrInUse):
				kept++
			default:
				failed++
				last = err
			}
		}
		keys = keys[:0]
	}
	listed := which.text
	if which.prefix {
		listed = "" // all
	}
	for o, err := range r.store.List(ctx, listed) {
		if err != nil {
			last = err
			continue
		}
		if !which.has(o.Space) {
			continue
		}
		if keys = append(keys, o.Key); len(keys) == clearBatch {
			flush()
		}
		if ctx.Err() != nil {
			break
		}
	}
	flush()
	if errors.Is(last, context.Canceled) {
		return // the daemon ends
	}
	if last != nil {
		r.uncleared.Warn(r.log, "objects could not be deleted", "space", which.text, "deleted", deleted, "in use", kept,
			"not deleted", failed, "error", last)
		return
	}
	r.cleared.Info(r.log, "objects were deleted", "space", which.text, "deleted", deleted, "in use", kept)
}
