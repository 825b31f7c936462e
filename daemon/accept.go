package daemon

import (
	"net"
	"time"

	"github.com/ringcache/ringcache/daemon/internal/registry"
	"github.com/ringcache/ringcache/daemon/wire"
)

const (
	// refuseAtOnce connections are told why they are refused at a time; others beyond are just closed.
	refuseAtOnce = 64
	refuseTime   = time.Second // for one of them
)

// accept serves a connection, or refuses it. Who is refused does not count as a connection: one process
// that makes ever more takes nobody's place.
func (s *Server) accept(conn net.Conn) {
	s.meter.accepted.Add(1)
	client, err := s.registry.Identify(conn)
	if err == nil && s.admit(conn, client) {
		return
	}
	why := &wire.Error{
		Kind: wire.KindBusy, Text: "there are as many connections as there may be; raise max-connections, or close some",
	}
	if err != nil {
		why = refusal(err)
	} else {
		client.Leave()
	}
	if why.Kind == wire.KindBusy {
		s.busy.Warn(s.log, "a connection was refused", "reason", why.Text)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse(conn, why)
}

// admit serves a connection of a client, unless there are too many, or the server ends.
func (s *Server) admit(conn net.Conn, client *registry.Client) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || len(s.conns) >= s.limits.MaxConnections {
		return false
	}
	c := &connection{server: s, conn: conn, client: client}
	c.work = work{rooms: s.rooms, part: &client.Part, stop: s.ending.Done(), wake: make(chan struct{}, 1)}
	s.conns[c] = struct{}{}
	s.work.Go(c.serve)
	return true
}

// refuse answers the first request of a connection with an error, in the background. The caller has the lock.
func (s *Server) refuse(conn net.Conn, why *wire.Error) {
	if s.refusing >= s.limits.refuseAtOnce() || s.closing {
		_ = conn.Close() // there is nobody to tell
		return
	}
	s.refusing++
	s.work.Go(func() {
		defer func() {
			_ = conn.Close() // it was refused anyhow
			s.mu.Lock()
			defer s.mu.Unlock()
			s.refusing--
		}()
		s.explain(conn, why)
	})
}

// explain waits a moment for a request, and answers it with an error.
func (s *Server) explain(conn net.Conn, why *wire.Error) {
	s.meter.refuse(why.Kind)
	if conn.SetDeadline(time.Now().Add(refuseTime)) != nil {
		return
	}
	var q wire.Request
	if body, err := wire.NewReader(conn, smallRequest).Next(); err == nil {
		_ = wire.DecodeRequest(body, &q) // what can't be read has the ID 0
	}
	if out, err := wire.AppendReply(nil, &wire.Reply{ID: q.ID, Error: why}); err == nil {
		_, _ = conn.Write(out) // it was refused anyhow
	}
}

// kinds are the registry's kinds of refusals, in the words of the protocol.
var kinds = map[registry.Kind]wire.Kind{
	registry.Internal: wire.KindInternal, registry.Invalid: wire.KindInvalid, registry.Permission: wire.KindPermission,
	registry.Busy: wire.KindBusy, registry.Taken: wire.KindHello, registry.Closing: wire.KindClosing,
}

// refusal returns an error of the registry as one of the protocol.
func refusal(err error) *wire.Error {
	return &wire.Error{Kind: kinds[registry.KindOf(err)], Text: err.Error()}
}
