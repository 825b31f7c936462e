package registry

import (
	"context"
	"time"

	"github.com/ringcache/ringcache/internal/failpoint"
)

// lookAgain is the longest time between two looks at the clock, which somebody may set. The memory level
// looks with every call, so nobody sees a lease whose time has passed; the registry looks so that one
// that nobody asks for ends, too.
const lookAgain = 5 * time.Second

// Look ends what ends by now, soon: something sets the clock, or what comes next has changed.
func (r *Registry) Look() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// keepTime ends what ends by time, until Close.
func (r *Registry) keepTime() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-r.stop:
			return
		case <-r.wake:
		case <-timer.C:
		}
		timer.Reset(r.pass())
	}
}

// pass ends what ends by now, and returns how long nothing will.
func (r *Registry) pass() time.Duration {
	r.memory.Stat(context.Background(), nil) // as every call, it ends leases whose time has passed
	for _, s := range r.overdue() {
		s.abandon()
	}
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	wait := lookAgain
	for _, at := range r.graces {
		wait = min(wait, at.Sub(now))
	}
	return max(wait, time.Millisecond)
}

// overdue returns the sessions for which nobody has come in time. Somebody may come before they are
// abandoned.
func (r *Registry) overdue() (sessions []*session) {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for s, at := range r.graces {
		if !now.Before(at) {
			sessions = append(sessions, s)
		}
	}
	return sessions
}

// abandon ends what is left of a session that nobody has come back for: all pins; and reservations,
// unless the death of the process will be noticed: it may be writing, so they end later.
func (s *session) abandon() {
	r := s.registry
	s.request.Lock()
	defer s.request.Unlock()
	watched, is := s.isOverdue()
	if !is {
		return
	}
	for _, l := range s.all() {
		if watched {
			l.t.Expire()
		} else {
			l.release()
			r.mu.Lock()
			r.counts.EndedByTime++
			r.mu.Unlock()
		}
		failpoint.Hit("daemon.abandoned")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removeEmpty(s)
}

// isOverdue reports whether nobody has come back in time, and so ends the wait; and whether the death of
// the process will be noticed. Whoever came just now, and has left again, has another grace time.
func (s *session) isOverdue() (watched, is bool) {
	r := s.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	at, waits := r.graces[s]
	if s.removed || r.closed || !waits || r.now().Before(at) {
		return false, false
	}
	delete(r.graces, s)
	return s.client.process.Watchable(), true
}
