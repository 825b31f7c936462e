package promise

import (
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"github.com/ringcache/ringcache/daemon/internal/process"
)

// session is what a client is known by, and what it was promised.
type session struct {
	book *Book
	id   string

	mu     sync.Mutex // of a request; guards what follows
	user   *Session   // who may use it; nil if no connection does
	owner  string     // of new leases
	label  string
	leases map[string]*lease
	// waiting is set from a restart until somebody joins.
	waiting bool
	ended   bool // it is not in the book any more
	closed  bool // the book is closed

	client *Client // changes under both locks
}

// Session is a connection's use of a session. One goroutine at a time may call its methods.
type Session struct {
	s    *session
	kick func()
}

// Join makes the caller the user of a session, which is made if it is not there. Its user before, if any, is kicked by the
// function that it gave, after its request under way has ended; and from then on is answered ErrTaken. kick must not wait, nor call the
// book. The errors are ErrOwner, ErrLimit, ErrClosed, process.ErrDead, and fs.ErrInvalid of
// a session that is empty or has "/" or a blank in it.
func (b *Book) Join(c *Client, id, label string, kick func()) (*Session, error) {
	if id == "" || strings.ContainsAny(id, "/ ") || len(label) > MaxLabel {
		return nil, fmt.Errorf("daemon: %q can't be a session, or its label has more than %d bytes: %w", id, MaxLabel, fs.ErrInvalid)
	}
	for {
		s, err := b.session(c, id)
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

// session returns the session of an ID, or a new one of a client.
func (b *Book) session(c *Client, id string) (*session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, ErrClosed
	}
	if s := b.sessions[id]; s != nil {
		return s, nil
	}
	total, has := int64(b.limits.Sessions), int64(len(b.sessions))
	switch {
	case c.dead:
		return nil, process.ErrDead
	case !quarter(total).allows(int64(len(c.sessions)), 1, total-has-1):
		return nil, fmt.Errorf("%w: process %d has %d sessions and others have %d, which leaves it no more; end some, or raise max-sessions",
			ErrLimit, c.PID(), len(c.sessions), int(has)-len(c.sessions))
	}
	return b.newSession(c, id), nil
}

func (b *Book) newSession(c *Client, id string) *session {
	s := &session{book: b, id: id, client: c, leases: map[string]*lease{}}
	c.sessions[s] = struct{}{}
	b.sessions[id] = s
	return s
}

// join makes u the user. It reports whether the session has ended meanwhile.
func (s *session) join(c *Client, u *Session, label string) (again bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return true, nil
	}
	if err := s.move(c); err != nil {
		s.settle()
		return false, err
	}
	before := s.user
	s.user, s.label, s.waiting = u, label, false
	s.owner = ownerOf(c.process.ID(), s.id, label)
	if before != nil && before != u {
		before.kick()
	}
	return false, nil
}

// move makes a session a client's, if it may be that.
func (s *session) move(c *Client) error {
	b := s.book
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return ErrClosed
	case c.dead:
		return process.ErrDead
	}
	if before := s.client; before != c {
		// Who can't be identified is believed to be who he says he is: a session is a random text, and the
		// user is the same.
		if before.process.Compare(c.process) == process.Different && (!s.waiting || before.process.ID().Known()) {
			return fmt.Errorf("%w: session %s belongs to process %d, and this is process %d; choose another session", ErrOwner, s.id, before.PID(), c.PID())
		}
		s.give(c)
	}
	delete(b.deserted, s)
	if s.waiting {
		b.counts.Waiting -= len(s.leases)
	}
	return nil
}

// give makes a session another client's, with what it has. The caller has both locks.
func (s *session) give(c *Client) {
	before := s.client
	items, bytes := s.has()
	delete(before.sessions, s)
	before.leases -= len(s.leases)
	before.items -= items
	before.held -= bytes
	s.client = c
	c.sessions[s] = struct{}{}
	c.leases += len(s.leases)
	c.items += items
	c.held += bytes
	s.book.dismiss(before)
}

// has counts what the leases of a session have.
func (s *session) has() (items, bytes int64) {
	for _, l := range s.leases {
		items += int64(len(l.items))
		bytes += l.bytes
	}
	return items, bytes
}

// enter begins a call, which ends with s.mu.Unlock.
func (u *Session) enter() error {
	s := u.s
	s.mu.Lock()
	var err error
	switch {
	case s.closed:
		err = ErrClosed
	case s.user != u:
		err = ErrTaken
	default:
		return nil
	}
	s.mu.Unlock()
	return err
}

// Leave ends the use of a session. What it was promised stays, but for a process whose death can't be noticed: that has
// the grace time to come back.
func (u *Session) Leave() {
	s := u.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.user != u || s.closed {
		return
	}
	s.user = nil
	if !s.client.process.Watchable() && len(s.leases) > 0 {
		s.desert()
	}
	s.settle()
}

// desert lets the grace time of a session begin.
func (s *session) desert() {
	b := s.book
	b.mu.Lock()
	b.deserted[s] = b.now().Add(b.grace)
	b.mu.Unlock()
	b.Look()
}

// settle forgets a session that has no user and no lease.
func (s *session) settle() {
	if s.user == nil && len(s.leases) == 0 && !s.ended {
		s.forget()
	}
}

func (s *session) forget() {
	b := s.book
	s.ended = true
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.sessions, s.id)
	delete(b.deserted, s)
	delete(s.client.sessions, s)
	b.dismiss(s.client)
}

// end ends a session with all it has, and returns how many leases it had.
func (s *session) end() int {
	n := len(s.leases)
	for _, l := range s.leases {
		l.release()
	}
	if user := s.user; user != nil {
		s.user = nil
		user.kick()
	}
	s.settle()
	return n
}
