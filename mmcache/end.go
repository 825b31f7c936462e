package mmcache

import (
	"errors"

	"github.com/ringcache/ringcache/internal/turn"
)

// ending is how a request ends.
type ending uint8

const (
	rollback ending = iota
	finish
	abort
)

// Rollback gives up a request that was not committed. It does nothing
// afterwards, so that it can be deferred.
func (r *Request) Rollback() { r.end(rollback) }

// Finish ends a request that the engine reported as finished: all of its workers
// have what they need. Before Commit it does nothing but to count as misuse
// (Stats.Misused) and to be logged: that is for Rollback.
func (r *Request) Finish() { r.end(finish) }

// Abort ends a request that was cancelled after it was committed. A worker may
// still read its items: see [Shared.Fence]. Before Commit it is as Finish.
func (r *Request) Abort() { r.end(abort) }

func (r *Request) end(how ending) {
	err := r.sending.Do(r.c.done, func() error { r.endNow(how); return nil })
	if errors.Is(err, turn.ErrHeld) && !r.endAfterSend(how) {
		r.endNow(how)
	}
	// With any other error the cache was abandoned, and so was the request.
}

// endAfterSend makes the end wait for the send that is running. It reports false if
// none is any more.
func (r *Request) endAfterSend(how ending) bool {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	if r.busy {
		r.later = append(r.later, how)
	}
	return r.busy
}

func (r *Request) endNow(how ending) {
	c := r.c
	c.mu.Lock()
	ends := r.state == open && how == rollback || r.state == committed && how != rollback
	misused := r.state == open && how != rollback
	switch {
	case misused:
		c.stats.Misused++
	case ends:
		r.how = how
		c.stats.ended(how)
		r.become(ended)
		c.checkChange()
	}
	c.mu.Unlock()
	if misused {
		c.o.Logger.Warn("Finish or Abort of a request that was not committed does nothing; use Rollback", "request", r.id)
	}
	if ends {
		r.leave()
	}
}

// abandon ends a request by force, and reports whether it was open. c.mu is held.
// A request that waits in Begin ends by itself.
func (r *Request) abandon() bool {
	switch r.state {
	case open:
		r.how = rollback
	case committed:
		r.how = abort
	default:
		return false
	}
	r.c.stats.ended(r.how)
	r.become(abandoned)
	r.c.checkChange()
	return true
}
