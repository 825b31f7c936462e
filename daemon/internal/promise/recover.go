package promise

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ringcache/ringcache/daemon/internal/process"
	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/tier"
)

// recover takes over what the leases of the store were promised by an earlier book.
func (b *Book) recover() error {
	known := map[process.ID]*Client{} // nil is dead
	defer func() {
		for _, c := range known {
			if c != nil {
				c.Leave()
			}
		}
	}()
	released := 0
	for _, st := range b.store.Leases() {
		dead, err := b.recoverLease(st, known)
		if err != nil {
			return fmt.Errorf("daemon: taking lease %q over: %w", st.ID, err)
		}
		if dead {
			released++
		}
		failpoint.Hit("daemon.recover")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counts.EndedByExit += uint64(released)
	if n := b.counts.Leases + released; n > 0 {
		b.log.Info("took leases over", "leases", b.counts.Leases, "sessions", len(b.sessions), "of the dead", released, "grace", b.grace)
	}
	return nil
}

// recoverLease takes one lease over, or releases it if its process is dead.
func (b *Book) recoverLease(st tier.LeaseState, known map[process.ID]*Client) (dead bool, err error) {
	t, err := b.store.Lease(context.Background(), tier.LeaseOptions{ID: st.ID, Owner: st.Owner, Until: st.Until})
	if err != nil {
		return false, err
	}
	id, session, name, label := read(st)
	c, ok := known[id]
	if !ok || !id.Known() {
		if c, err = b.recoverClient(id); err != nil {
			return false, err
		}
		if id.Known() {
			if known[id] = c; c != nil {
				b.mu.Lock()
				c.enter(1) // until all leases are taken over
				b.mu.Unlock()
			}
		}
	}
	s := b.recoverSession(c, session, st.Owner, label)
	if s == nil {
		t.Release()
		return true, nil
	}
	b.mu.Lock()
	b.dismiss(c) // if the session has another one
	b.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended { // its process has died just now
		t.Release()
		return true, nil
	}
	if s.client != c && s.client.process.ID().Known() {
		b.log.Warn("leases of one session have several processes: it is nobody's", "session", session, "lease", st.ID)
		if err := s.disown(); err != nil {
			return false, err
		}
	}
	return false, s.recoverLease(name, t, st)
}

// recoverSession returns the session of a lease of an earlier process, nil if the client is dead.
func (b *Book) recoverSession(c *Client, id, owner, label string) *session {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c == nil || c.dead {
		return nil
	}
	s := b.sessions[id]
	if s == nil {
		s = b.newSession(c, id)
		s.waiting, s.owner, s.label = true, owner, label
		b.deserted[s] = b.now().Add(b.grace)
	}
	return s
}

// recoverLease adds a lease of an earlier process.
func (s *session) recoverLease(name string, t *tier.StoreLease, st tier.LeaseState) error {
	b := s.book
	now := b.clock()
	rest := st.Until.Sub(now.Round(0))
	if st.Until.IsZero() { // nobody's: ours end
		rest = b.limits.Longest
	}
	until := now.Add(max(rest, b.grace))
	if !until.Equal(st.Until) {
		if err := t.SetUntil(until); err != nil && !errors.Is(err, tier.ErrEnded) {
			return err
		}
	}
	l := s.add(name, t, until)
	if err := l.load(); err != nil {
		return err
	}
	if len(l.items) == 0 {
		l.release()
		s.settle()
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counts.Recovered++
	return nil
}

// read returns whose a lease is. What no book made is a session of its own, which nobody can join.
func read(st tier.LeaseState) (id process.ID, session, name, label string) {
	id, session, label, err := parseOwner(st.Owner)
	name, ok := strings.CutPrefix(st.ID, session+"/")
	if err != nil || !ok || name == "" || strings.Contains(session, "/") || session == "" {
		return process.ID{}, "/" + st.ID, st.ID, st.Owner
	}
	return id, session, name, label
}

// recoverClient returns the client of a process, nil if it is dead, and a client of its own if that can't be known.
func (b *Book) recoverClient(id process.ID) (*Client, error) {
	p, err := process.Open(id)
	if errors.Is(err, process.ErrDead) {
		return nil, nil
	}
	if err != nil {
		p = process.Unknown()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.clientOf(p), nil
}

// disown makes a session one of a process that is not known.
func (s *session) disown() error {
	c, err := s.book.recoverClient(process.ID{})
	if err != nil {
		return err
	}
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	s.give(c)
	return nil
}

// abandon ends what is left of a session that nobody has come back for: all pins; and reservations, unless the death of
// the process will be noticed: it may be writing, so they end later. It returns how many leases ended.
func (s *session) abandon() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.closed || !s.isDeserted() {
		return 0
	}
	n := 0
	watched := s.client.process.Watchable()
	for _, l := range s.leases {
		if watched {
			n += l.lapse()
		} else {
			l.release()
			n++
		}
		failpoint.Hit("daemon.abandoned")
	}
	s.settle()
	return n
}

// isDeserted reports whether nobody has come back in time, and so ends the wait. Whoever came just now, and has left again, has another
// grace time.
func (s *session) isDeserted() bool {
	b := s.book
	b.mu.Lock()
	defer b.mu.Unlock()
	at, waits := b.deserted[s]
	if !waits || b.now().Before(at) {
		return false
	}
	delete(b.deserted, s)
	return true
}
