package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/daemon/internal/process"
	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/tier"
)

// recover takes over the leases of the store that an earlier registry named, for the sessions of their
// protocols.
func (r *Registry) recover() error {
	known := map[process.ID]*Client{} // nil is dead
	defer func() {
		for _, c := range known {
			if c != nil {
				c.Leave()
			}
		}
	}()
	released := 0
	for _, st := range r.store.Leases() {
		dead, err := r.recoverLease(st, known)
		if err != nil {
			return fmt.Errorf("daemon: taking lease %q over: %w", st.ID, err)
		}
		if dead {
			released++
		}
		failpoint.Hit("daemon.recover")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.EndedByExit += uint64(released)
	if n := r.counts.Leases + released; n > 0 {
		r.log.Info("took leases over", "leases", r.counts.Leases, "sessions", len(r.sessions), "of the dead", released,
			"grace", r.grace)
	}
	return nil
}

// recoverLease takes one lease over, or releases it if its process is dead.
func (r *Registry) recoverLease(st tier.LeaseState, known map[process.ID]*Client) (dead bool, err error) {
	id, key, name, label := claimOf(st)
	c, err := r.recoverClient(id, known)
	if err != nil {
		return false, err
	}
	s := r.recoverSession(c, key, st.Owner, label)
	if s != nil {
		s.request.Lock()
		defer s.request.Unlock()
		dead, err = s.recoverLease(c, name, st)
	}
	if err != nil || s != nil && !dead {
		return false, err
	}
	t, err := r.store.Lease(context.Background(), tier.LeaseOptions{ID: st.ID, Owner: st.Owner, Until: st.Until})
	if err != nil {
		return false, err
	}
	t.Release()
	return true, nil
}

// recoverClient returns the client of a process, nil if it is dead, and a client of its own if that
// can't be known. A known one stays until all leases are taken over.
func (r *Registry) recoverClient(id process.ID, known map[process.ID]*Client) (*Client, error) {
	if c, ok := known[id]; ok {
		return c, nil
	}
	p, err := process.Open(id)
	dead := errors.Is(err, process.ErrDead)
	if err != nil {
		p = process.Unknown()
	}
	if dead {
		known[id] = nil
		return nil, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.clientOf(p)
	if id.Known() {
		known[id] = c
		c.enter(1)
	}
	return c, nil
}

// recoverSession returns the session of a lease of an earlier process, nil if the client is dead.
func (r *Registry) recoverSession(c *Client, key, owner, label string) *session {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c == nil || c.dead {
		return nil
	}
	s := r.sessions[key]
	if s == nil {
		s = r.newSession(c, key)
		s.waiting, s.owner, s.label = true, owner, label
		r.graces[s] = r.now().Add(r.grace)
	}
	r.removeUnused(c) // if the session has another one
	return s
}

// recoverLease adds a lease of an earlier process, which lasts for at least the grace time. It reports
// whether the process has died just now.
func (s *session) recoverLease(c *Client, name string, st tier.LeaseState) (dead bool, err error) {
	r := s.registry
	r.mu.Lock()
	if s.removed {
		r.mu.Unlock()
		return true, nil
	}
	if s.client != c && s.client.process.ID().Known() {
		r.log.Warn("leases of one session have several processes: it is nobody's", "session", s.key, "lease", st.ID)
		s.move(r.clientOf(process.Unknown()))
	}
	l := r.addLease(s, name)
	r.mu.Unlock()
	now := r.clock()
	rest := st.Until.Sub(now.Round(0))
	if st.Until.IsZero() { // no registry's: ours end
		rest = r.Limits().Longest
	}
	l.t, err = r.store.Lease(context.Background(), tier.LeaseOptions{
		ID: st.ID, Owner: st.Owner, Until: st.Until, Account: l,
	})
	if err != nil {
		return false, err
	}
	if err := l.t.SetUntil(now.Add(max(rest, r.grace))); err != nil && !errors.Is(err, tier.ErrEnded) {
		return false, err
	}
	if has := l.t.Summary(); has.Pinned+has.Reserved > 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.counts.Recovered++
		return false, nil
	}
	l.release()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removeEmpty(s)
	return false, nil
}
