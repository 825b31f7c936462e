package shmstore

// Commit reports that the handles were sent, or are about to be: they may be read from
// now on.
func (r *Request) Commit() error {
	if err := r.lockOpen(); err != nil {
		return err
	}
	defer r.s.mu.Unlock()
	r.setState(requestCommitted)
	r.sent = true
	for l := range r.leases.All() {
		l.Object.sent++
		if l.Times != 0 {
			r.s.lifetime.owner.Sent(l.Object, l.Uses)
		}
	}
	return nil
}

// Rollback ends a request that was not sent and never will be: what it used counts as
// never used. It does nothing after Commit.
func (r *Request) Rollback() { r.end(requestOpen, false) }

// Finish ends a request whose readers have done with everything. Before Commit it does
// nothing, since that is for Rollback, and is counted in Stats.Misused: the request is
// open as before. When the request has ended it does nothing.
func (r *Request) Finish() { r.end(requestCommitted, false) }

// Abort ends a request that was cancelled after it was sent: a reader may still look
// for its payloads. So they go into quarantine, until the owner's counts are complete, a
// [Fence] passes, or Options.QuarantineTTL ends it. Before Commit it does nothing and
// is counted, as Finish is.
func (r *Request) Abort() { r.end(requestCommitted, true) }

func (r *Request) end(from requestState, aborted bool) {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.state == requestOpen && from == requestCommitted && !s.state.Closed {
		s.lifetime.misused++
	}
	if r.state == from && !s.state.Closed {
		r.endNow(aborted)
	}
	// A Rollback that comes after Commit is deferred, and does not end it.
	if r.mapped && r.state == requestEnded && (from == requestCommitted || !r.sent) {
		r.mapped = false
		s.lifetime.mapped--
		s.seg.Release()
	}
	s.wakeShutdown()
}

// endNow ends a request of an open store. What Bytes returned stays valid until the
// owner ends it too.
func (r *Request) endNow(aborted bool) {
	committed := r.state == requestCommitted
	r.setState(requestEnded)
	for l := range r.leases.All() {
		r.endLease(*l, committed, aborted)
	}
	r.leases.Clear()
}
