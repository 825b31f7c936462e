package mmcache

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

func (r *Request) end(how ending) { r.warn(r.endNow(how)) }

// endNow ends a request if it is in a state that ends so, or has the send that is running do it. misused
// reports that the request is open, and was to be ended as if it were committed.
func (r *Request) endNow(how ending) (misused bool) {
	if how == rollback && r.stateNow() != open { // deferred, mostly: the cache's lock is for others
		return false
	}
	last, misused := r.tryEnd(how)
	if last {
		r.finalize()
	}
	return misused
}

// tryEnd changes the state for endNow. last reports that no call of the request runs any
// more.
func (r *Request) tryEnd(how ending) (last, misused bool) {
	c := r.c
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.checkChange()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.busy:
		r.later = append(r.later, how)
	case r.state == open && how != rollback:
		c.stats.Misused++
		return false, true
	case r.state == open, r.state == committed && how != rollback:
		r.how = how
		c.stats.ended(how)
		r.become(ended)
		return r.left(), false
	}
	return false, false
}

// warn logs a call that was not right.
func (r *Request) warn(misused bool) {
	if misused {
		r.c.o.Logger.Warn("Finish or Abort of a request that was not committed does nothing; use Rollback",
			"request", r.id)
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
	r.become(abandoned)
	return true
}
