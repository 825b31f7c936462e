package mmcache

import (
	"context"
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
	err := r.sending.Lock(context.Background(), r.c.done.Done())
	switch {
	case err == nil:
		misused := r.endNow(how)
		r.sending.Unlock()
		r.warn(misused)
	case errors.Is(err, turn.ErrHeld) && !r.endAfterSend(how):
		r.warn(r.endNow(how))
	}
	// With any other error the cache was abandoned, and so was the request.
}

// endAfterSend makes the end wait for the send that is running. It reports false if
// none is any more.
func (r *Request) endAfterSend(how ending) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy {
		r.later = append(r.later, how)
	}
	return r.busy
}

// endNow ends a request if it is in a state that ends so. misused reports that the request
// is open, and was to be ended as if it were committed.
func (r *Request) endNow(how ending) (misused bool) {
	r.mu.Lock()
	ends := r.ends(how)
	r.mu.Unlock()
	if !ends { // a Rollback that was deferred, mostly, which needs not the cache's lock
		return false
	}
	ends, misused = r.tryEnd(how)
	if ends {
		r.leave()
	}
	return misused
}

// ends reports whether the request is in a state in which such an end does something. r.mu
// is held.
func (r *Request) ends(how ending) bool {
	return r.state == open || r.state == committed && how != rollback
}

// tryEnd changes the state for endNow.
func (r *Request) tryEnd(how ending) (ends, misused bool) {
	c := r.c
	c.mu.Lock()
	defer c.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.ends(how): // by now
		return false, false
	case r.state == open && how != rollback:
		c.stats.Misused++
		return false, true
	}
	r.how = how
	c.stats.ended(how)
	r.become(ended, c.now())
	c.checkChange()
	return true, false
}

// warn logs a call that was not right.
func (r *Request) warn(misused bool) {
	if misused {
		r.c.o.Logger.Warn("Finish or Abort of a request that was not committed does nothing; use Rollback", "request", r.id)
	}
}

// abandon ends a request by force, and reports whether it was open. c.mu is held.
// A request that waits in Begin ends by itself.
func (r *Request) abandon() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch r.state {
	case open:
		r.how = rollback
	case committed:
		r.how = abort
	default:
		return false
	}
	r.c.stats.ended(r.how)
	r.become(abandoned, r.c.now())
	r.c.checkChange()
	return true
}
