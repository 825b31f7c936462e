package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/tier"
)

const (
	maxClears  = 64  // spaces that wait to be cleared
	clearBatch = 256 // objects that are deleted in one call
)

// clearer has the spaces whose objects are to be deleted in the background, one space after the other.
// Guarded by the lock of the registry.
type clearer struct {
	waiting []string // spaces; empty is all
	running bool
}

// add adds a space. It reports whether there is room for it, and whether the caller has to start a run.
func (l *clearer) add(space string) (ok, start bool) {
	for _, s := range l.waiting {
		if s == space || s == "" {
			return true, false
		}
	}
	switch {
	case space == "":
		l.waiting = l.waiting[:0]
	case len(l.waiting) >= maxClears:
		return false, false
	}
	l.waiting = append(l.waiting, space)
	start = !l.running
	l.running = true
	return true, start
}

// next returns the next space, and false when there is none.
func (l *clearer) next() (string, bool) {
	if len(l.waiting) == 0 {
		l.running = false
		return "", false
	}
	space := l.waiting[0]
	l.waiting = l.waiting[1:]
	return space, true
}

// Clear deletes the objects of a space, or of all spaces if it is empty, in the background, but what
// leases have. The errors are ErrLimit if many spaces wait to be cleared, and those of Pin.
func (u *Session) Clear(space string) error {
	if _, err := u.begin(""); err != nil {
		return err
	}
	s, r := u.s, u.s.registry
	defer s.request.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrClosed
	}
	ok, start := r.clearer.add(space)
	if !ok {
		return fmt.Errorf("%w: many spaces are being cleared already; ask again when they are", ErrLimit)
	}
	r.clearing.Info(r.log, "objects are being deleted, as a client wants", "space", space, "session", s.id(), "pid", s.client.PID())
	if start {
		r.background.Go(func() {
			for space, more := r.nextToClear(); more; space, more = r.nextToClear() {
				r.clearSpace(space)
			}
		})
	}
	return nil
}

// nextToClear is next of the clearer, under the lock.
func (r *Registry) nextToClear() (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.clearer.next()
}

// clearSpace deletes what is there of a space now, but what leases have.
func (r *Registry) clearSpace(space string) {
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
	for o, err := range r.store.List(ctx, space) {
		if err != nil {
			last = err
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
		r.uncleared.Warn(r.log, "objects could not be deleted", "space", space, "deleted", deleted, "in use", kept, "not deleted", failed, "error", last)
		return
	}
	r.cleared.Info(r.log, "objects were deleted", "space", space, "deleted", deleted, "in use", kept)
}
