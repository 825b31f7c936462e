package daemon

import (
	"context"
	"errors"
	"sync"

	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/tier"
)

const (
	maxClears  = 64  // spaces that wait to be cleared
	clearBatch = 256 // objects that are deleted in one call
)

// clearer deletes the objects of spaces in the background, one space after the other.
type clearer struct {
	mu      sync.Mutex
	waiting []string // spaces; empty is all
	running bool
}

func (l *clearer) isBusy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running
}

// add adds a space. It reports whether there is room for it, and whether the caller has to start a run.
func (l *clearer) add(space string) (ok, start bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
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
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		l.running = false
		return "", false
	}
	space := l.waiting[0]
	l.waiting = l.waiting[1:]
	return space, true
}

// clear answers Clear.
func (c *connection) clear(q *wire.Request) *wire.Reply {
	s := c.server
	if err := (tier.Key{Space: q.Space, Name: "any"}).Validate(); err != nil {
		return failed(wire.KindInvalid, "request: space: "+err.Error())
	}
	ok, start := s.clears.add(q.Space)
	if !ok {
		return failed(wire.KindBusy, "many spaces are being cleared already; ask again when they are")
	}
	s.clearing.Info(s.log, "objects are being deleted, as a client wants", "space", q.Space, "session", c.session.id, "pid", c.client.PID())
	if start {
		s.work.Go(func() {
			for space, more := s.clears.next(); more; space, more = s.clears.next() {
				s.clearSpace(space)
			}
		})
	}
	state := s.State()
	return &wire.Reply{State: &state}
}

// clearSpace deletes what is there of a space now, but what leases have.
func (s *Server) clearSpace(space string) {
	ctx := s.ending
	var keys []tier.Key
	var deleted, kept, failed int
	var last error
	flush := func() {
		for _, err := range s.o.Store.Delete(ctx, keys) {
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
	for o, err := range s.o.Store.List(ctx, space) {
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
		s.uncleared.Warn(s.log, "objects could not be deleted", "space", space, "deleted", deleted, "in use", kept, "not deleted", failed, "error", last)
		return
	}
	s.cleared.Info(s.log, "objects were deleted", "space", space, "deleted", deleted, "in use", kept)
}
