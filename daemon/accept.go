package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/ringcache/ringcache/daemon/internal/process"
	"github.com/ringcache/ringcache/daemon/internal/promise"
	"github.com/ringcache/ringcache/daemon/wire"
)

const (
	// refuseAtOnce connections are told why they are refused at a time; others beyond are just closed.
	refuseAtOnce = 64
	refuseTime   = time.Second // for one of them
)

// accept serves a connection, or refuses it. Who is refused does not count as a connection: one process that makes ever more takes
// nobody's place.
func (s *Server) accept(conn net.Conn) {
	s.meter.accepted.Add(1)
	client, why := s.identify(conn)
	if why == nil && s.admit(conn, client) {
		return
	}
	if client != nil {
		client.Leave()
	}
	if why == nil {
		why = &wire.Error{Kind: wire.KindBusy, Text: "there are as many connections as there may be; raise max-connections, or close some"}
	}
	if why.Kind == wire.KindBusy {
		s.busy.Warn(s.log, "a connection was refused", "reason", why.Text)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse(conn, why)
}

// admit serves a connection of a client, unless there are too many, or the server ends.
func (s *Server) admit(conn net.Conn, client *promise.Client) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || len(s.conns) >= s.limits.MaxConnections {
		return false
	}
	c := &connection{server: s, conn: conn, client: client}
	c.work = work{rooms: &s.rooms, part: s.partOf(client), stop: s.ending.Done(), wake: make(chan struct{}, 1)}
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

// identify returns the client of a connection, or why it is refused.
func (s *Server) identify(conn net.Conn) (*promise.Client, *wire.Error) {
	raw, ok := conn.(syscall.Conn)
	if !ok {
		return nil, &wire.Error{Kind: wire.KindPermission, Text: "nobody knows who is connected: this is no socket"}
	}
	p, user, err := process.Peer(raw)
	if err != nil {
		return nil, &wire.Error{Kind: unknownPeer(err), Text: fmt.Sprintf("nobody knows who is connected: %v", err)}
	}
	if own := os.Geteuid(); int(user) != own {
		p.Close()
		s.odd.Warn(s.log, "a client of another user was refused", "user", user, "pid", p.ID().PID)
		return nil, &wire.Error{Kind: wire.KindPermission, Text: fmt.Sprintf("you are user %d, and the daemon serves user %d only; run both as one user", user, own)}
	}
	s.mu.Lock()
	most := max(1, s.limits.MaxConnections/4)
	s.mu.Unlock()
	c, err := s.book.Enter(p, most)
	if err != nil {
		return nil, refusal(err)
	}
	return c, nil
}

// refusal returns an error of promises as one of the protocol.
func refusal(err error) *wire.Error {
	kind := wire.KindInternal
	switch {
	case errors.Is(err, promise.ErrOwner), errors.Is(err, process.ErrDead):
		kind = wire.KindPermission
	case errors.Is(err, promise.ErrLimit):
		kind = wire.KindBusy
	case errors.Is(err, promise.ErrClosed), errors.Is(err, os.ErrClosed):
		kind = wire.KindClosing
	case errors.Is(err, promise.ErrTaken):
		kind = wire.KindHello
	}
	return &wire.Error{Kind: kind, Text: err.Error()}
}
