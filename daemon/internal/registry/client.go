package registry

import (
	"fmt"

	"github.com/ringcache/ringcache/daemon/internal/fair"
	"github.com/ringcache/ringcache/daemon/internal/process"
	"github.com/ringcache/ringcache/internal/failpoint"
)

// Client is a process, with all its sessions. Its fields are guarded by the lock of the registry.
//
// A client is there from its first Enter until it has neither a connection nor a session. When its process
// ends, it is dead first: it gets no session any more, and those that it has are ended one by one, each after
// its request. A session may go to another client before, since nothing tells some processes apart.
type Client struct {
	Part fair.Part // of what requests take, whatever their protocol; the registry does not look at it

	registry *Registry
	process  *process.Process
	entered  int  // connections
	dead     bool // set by died
	removed  bool // set by removeUnused: it is not in Registry.clients
	sessions map[*session]struct{}
	leases   int
	charged  charged // of all sessions
	interest interest
	visit    visit
}

// Enter returns the client of a process, which the registry takes over: it closes p. Each Enter needs a
// Leave. A client is one process, so that what it may have does not grow with its connections, whatever
// their protocols.
func (r *Registry) Enter(p *process.Process) (*Client, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		p.Close()
		return nil, ErrClosed
	}
	c := r.clientOf(p)
	total := int64(r.limits.Connections)
	if !quarter(total).allows(int64(c.entered), 1, total-int64(r.entered)-1) {
		others := r.entered - c.entered
		r.removeUnused(c)
		return nil, fmt.Errorf("%w: process %d has %d connections and others have %d, which leaves it no more; close some, or raise max-connections", ErrLimit, c.PID(), c.entered, others)
	}
	c.enter(1)
	return c, nil
}

// enter counts connections. The caller has the lock.
func (c *Client) enter(n int) {
	c.entered += n
	c.registry.entered += n
}

// clientOf returns the client of a process, or a new one. The caller has the lock.
func (r *Registry) clientOf(p *process.Process) *Client {
	for c := range r.clients {
		if !c.dead && c.process.Compare(p) == process.Same {
			p.Close()
			return c
		}
	}
	c := &Client{registry: r, process: p, sessions: map[*session]struct{}{}}
	r.clients[c] = struct{}{}
	r.background.Go(func() {
		if p.Wait() {
			r.died(c)
		}
	})
	return c
}

// Leave ends an Enter.
func (c *Client) Leave() {
	c.registry.mu.Lock()
	defer c.registry.mu.Unlock()
	c.enter(-1)
	c.registry.removeUnused(c)
}

// PID returns the number of the process, 0 if it is unknown.
func (c *Client) PID() int { return c.process.ID().PID }

// removeUnused removes a client that has no connection and no session. The caller has the lock.
func (r *Registry) removeUnused(c *Client) {
	if c.entered > 0 || len(c.sessions) > 0 || c.removed {
		return
	}
	c.removed = true
	delete(r.clients, c)
	c.process.Close()
}

// died ends all sessions of a process.
func (r *Registry) died(c *Client) {
	r.mu.Lock()
	c.dead = true
	sessions := make([]*session, 0, len(c.sessions))
	for s := range c.sessions {
		sessions = append(sessions, s)
	}
	r.mu.Unlock()
	ended := 0
	for _, s := range sessions {
		s.request.Lock()
		if s.isOf(c) {
			ended += s.end()
			failpoint.Hit("daemon.died")
		}
		s.request.Unlock()
	}
	r.mu.Lock()
	r.counts.EndedByExit += uint64(ended)
	r.removeUnused(c)
	r.mu.Unlock()
	if ended > 0 {
		r.ended.Info(r.log, "a process has ended, and so have its leases", "pid", c.PID(), "sessions", len(sessions),
			"leases", ended)
	}
}

// isOf reports whether a session is a client's, and the registry is open.
func (s *session) isOf(c *Client) bool {
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	return s.client == c && !s.registry.closed
}

// Process returns the identity of the process.
func (c *Client) Process() process.ID { return c.process.ID() }
