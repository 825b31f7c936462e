package registry

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/ringcache/ringcache/daemon/internal/process"
)

// session is what a client is known by, and the names of its leases. It is in one of these states, between
// which Join, Leave, the end of the process and the keeper of times move it under both its locks:
//
//   - in use: user is a connection's;
//   - left: user is nil, and the process lives. All stays, for ever if the end of the process will be noticed,
//     and else until its time in Registry.graces;
//   - waiting: it was recovered from the registry before, and nobody has joined it yet, until its time in graces;
//   - removed: it has neither a user nor a lease, and Registry.sessions does not have it. Who still has it in
//     hand looks for the session anew.
type session struct {
	registry *Registry
	key      string // see sessionKey

	request sync.Mutex // a request has it, so that those of a session are in order

	// Guarded by the lock of the registry.
	client  *Client
	user    *Session // who may use it; nil if no connection does
	owner   string   // of new leases
	label   string
	leases  map[string]*lease
	charged charged
	visit   visit // if it has a user
	waiting bool  // from a restart until somebody joins
	removed bool
}

// Session is a connection's use of a session. One goroutine at a time may call its methods.
type Session struct {
	s    *session
	kick func()
}

// Join makes the caller the user of a session of a protocol, which is made if it is not there. Its user
// before, if any, is kicked by the function that it gave, after its request under way has ended; and
// from then on is answered ErrTaken. kick must not wait, nor call the registry. The errors are ErrOwner,
// ErrLimit, ErrClosed, process.ErrDead, and fs.ErrInvalid of a session that is empty or has "/" or a
// blank in it.
func (r *Registry) Join(c *Client, protocol, id, label string, kick func()) (*Session, error) {
	if id == "" || strings.ContainsAny(id, "/ ") || len(label) > MaxLabel {
		return nil, fmt.Errorf("daemon: %q can't be a session, or its label has more than %d bytes: %w",
			id, MaxLabel, fs.ErrInvalid)
	}
	for {
		s, err := r.session(c, sessionKey(protocol, id))
		if err != nil {
			return nil, err
		}
		u := &Session{s, kick}
		again, err := s.join(c, u, label)
		if err != nil {
			return nil, err
		}
		if !again {
			return u, nil
		}
	}
}

// session returns a session, or a new one of a client.
func (r *Registry) session(c *Client, key string) (*session, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, ErrClosed
	}
	if s := r.sessions[key]; s != nil {
		return s, nil
	}
	total, has := int64(r.limits.Sessions), int64(len(r.sessions))
	switch {
	case c.dead:
		return nil, process.ErrDead
	case !quarter(total).allows(int64(len(c.sessions)), 1, total-has-1):
		return nil, fmt.Errorf("%w: process %d has %d sessions and others have %d, which leaves it no more; end some, or raise max-sessions",
			ErrLimit, c.PID(), len(c.sessions), int(has)-len(c.sessions))
	}
	return r.newSession(c, key), nil
}

// newSession adds a session of a client, which nobody uses yet. The caller has the lock.
func (r *Registry) newSession(c *Client, key string) *session {
	s := &session{registry: r, key: key, client: c, leases: map[string]*lease{}}
	c.sessions[s] = struct{}{}
	r.sessions[key] = s
	return s
}

// join makes u the user. It reports whether the session has ended meanwhile.
func (s *session) join(c *Client, u *Session, label string) (again bool, err error) {
	r := s.registry
	s.request.Lock()
	defer s.request.Unlock()
	r.mu.Lock()
	before := s.user
	again = s.removed
	if !again {
		if err = s.giveTo(c); err == nil {
			if s.user == nil {
				s.arrive()
			}
			s.user, s.label, s.waiting, s.owner = u, label, false, ownerOf(c.process.ID(), label)
		} else {
			before = nil
			r.removeEmpty(s)
		}
	}
	r.mu.Unlock()
	if !again && before != nil && before != u {
		before.kick()
	}
	return again, err
}

// giveTo makes a session a client's, if it may have it, and ends its grace time.
func (s *session) giveTo(c *Client) error {
	r := s.registry
	switch {
	case r.closed:
		return ErrClosed
	case c.dead:
		return process.ErrDead
	}
	if before := s.client; before != c {
		// Who can't be identified is believed to be who he says he is: a session is a random text, and the
		// user is the same.
		if before.process.Compare(c.process) == process.Different && (!s.waiting || before.process.ID().Known()) {
			return fmt.Errorf("%w: session %s belongs to process %d, and this is process %d; choose another session",
				ErrOwner, s.id(), before.PID(), c.PID())
		}
		s.move(c)
	}
	delete(r.graces, s)
	if s.waiting {
		r.counts.Waiting -= len(s.leases)
	}
	return nil
}

// move makes a session another client's, with what it is charged for. The caller has the lock of the
// registry.
func (s *session) move(c *Client) {
	before := s.client
	if s.user != nil {
		s.depart()
	}
	delete(before.sessions, s)
	before.leases -= len(s.leases)
	before.charged.add(-s.charged.objects, -s.charged.bytes)
	s.client = c
	c.sessions[s] = struct{}{}
	c.leases += len(s.leases)
	c.charged.add(s.charged.objects, s.charged.bytes)
	s.registry.removeUnused(before)
}

// begin begins a request, which ends with s.request.Unlock, about the lease of a name: nil if there is none.
// The time of the lease may have passed just now.
func (u *Session) begin(name string) (*lease, error) {
	s := u.s
	s.request.Lock()
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	switch {
	case s.registry.closed:
		s.request.Unlock()
		return nil, ErrClosed
	case s.user != u:
		s.request.Unlock()
		return nil, ErrTaken
	}
	return s.leases[name], nil
}

// within does something in a request about a lease, unless there is none.
func (u *Session) within(name string, do func(l *lease)) error {
	l, err := u.begin(name)
	if err != nil {
		return err
	}
	defer u.s.request.Unlock()
	if l != nil {
		do(l)
	}
	return nil
}

// While calls do in a request, so that neither the end of the process nor another connection ends meanwhile what the
// session has: who reads from a connection into a reservation relies on that. do must not call the session.
func (u *Session) While(do func()) error {
	if _, err := u.begin(""); err != nil {
		return err
	}
	defer u.s.request.Unlock()
	do()
	return nil
}

// Leave ends the use of a session. Its leases stay, but for a process whose death can't be
// noticed: that has the grace time to come back.
func (u *Session) Leave() {
	s, r := u.s, u.s.registry
	s.request.Lock()
	defer s.request.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.user != u || r.closed {
		return
	}
	s.depart()
	if !s.client.process.Watchable() && len(s.leases) > 0 {
		r.graces[s] = r.now().Add(r.grace)
		r.Look()
	}
	r.removeEmpty(s)
}

// removeEmpty removes a session that has no user and no lease. The caller has the lock.
func (r *Registry) removeEmpty(s *session) {
	if s.user != nil || len(s.leases) > 0 || s.removed {
		return
	}
	s.removed = true
	delete(r.sessions, s.key)
	delete(r.graces, s)
	delete(s.client.sessions, s)
	r.removeUnused(s.client)
}

// end ends a session with all it has, and returns how many leases it had.
func (s *session) end() int {
	r := s.registry
	all := s.all()
	for _, l := range all {
		l.release()
	}
	r.mu.Lock()
	user := s.user
	if user != nil {
		s.depart()
	}
	r.removeEmpty(s)
	r.mu.Unlock()
	if user != nil {
		user.kick()
	}
	return len(all)
}

// all returns the leases of a session.
func (s *session) all() []*lease {
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	return slices.Collect(maps.Values(s.leases))
}
