package daemon

import (
	"slices"
	"time"

	"github.com/ringcache/ringcache/daemon/internal/registry"
	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/tier"
)

// maxClients bounds the clients of a reply: each takes at most 600 bytes of it.
const maxClients = 1024

// count counts what a request was answered.
func (c *connection) count(q *wire.Request, p *wire.Reply) {
	s := c.server
	if p.Error == nil {
		s.meter.items(q.Op, p.Items)
	}
	if c.session == nil {
		return
	}
	use := useOf(q.Op, p)
	use.Stored, c.session.stored = int64(c.session.stored), 0
	space := q.Space
	if len(space) > tier.MaxSpace {
		space = ""
	}
	label := c.session.user.Count(space, use, q.Op == wire.Hello || q.Op == wire.Stat)
	if q.Op == wire.Reserve &&
		slices.ContainsFunc(p.Items, func(it wire.Item) bool { return it.Status == wire.StatusFull }) {
		s.full.Warn(s.log, "there is no room in memory for an object that a client wants to store: leases hold what is there, or its process has all that it may have: `ringcache serve status` lists who holds what; raise size or max-held if all of it is needed",
			"pid", c.client.PID(), "client", label)
	}
}

// useOf counts the hits and misses of an answer. What was stored can't be seen in it: `ok` is also the answer
// about what was there.
func useOf(op wire.Op, p *wire.Reply) (use registry.Use) {
	if op != wire.Pin || p.Error != nil {
		return use
	}
	for _, it := range p.Items {
		switch {
		case it.Status == wire.StatusHit:
			use.Hits++
		case slices.Contains(missStatuses, it.Status):
			use.Misses++
		}
	}
	return use
}

// missStatuses are answers to Pin after which the client makes the object itself.
var missStatuses = []wire.Status{wire.StatusMiss, wire.StatusUnavailable, wire.StatusFull, wire.StatusTooLarge}

// clientList lists the sessions that have a connection, in the order of their processes and names, but
// at most 1024.
func (s *Server) clientList() []wire.ClientState {
	now := time.Now()
	found := s.registry.Visits(maxClients)
	out := make([]wire.ClientState, len(found))
	for i, x := range found {
		if x.Protocol != protocol {
			x.Session = x.Protocol + "/" + x.Session
		}
		out[i] = wire.ClientState{
			Session: x.Session, Client: x.Label, PID: x.PID, Space: x.Space,
			Seconds: int64(now.Sub(x.Since) / time.Second),
			Idle:    int64(now.Sub(x.Last) / time.Second), Hits: x.Use.Hits, Misses: x.Use.Misses, Stored: x.Use.Stored,
		}
	}
	return out
}

// clear answers Clear.
func (c *connection) clear(q *wire.Request) (*wire.Reply, error) {
	if err := (tier.Key{Space: q.Space, Name: "any"}).Validate(); err != nil {
		return failed(wire.KindInvalid, "request: space: "+err.Error()), nil
	}
	state := c.server.State() // before it begins, since it may be done at once
	state.Clearing = true
	erase := c.session.user.Clear
	if q.Prefix {
		erase = c.session.user.ClearPrefix
	}
	if err := erase(q.Space); err != nil {
		return nil, err
	}
	return &wire.Reply{State: &state}, nil
}
