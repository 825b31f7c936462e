package lmcache

import (
	"net"
	"sync"

	"github.com/ringcache/ringcache/daemon/internal/process"
	"github.com/ringcache/ringcache/daemon/internal/registry"
)

// identify returns a new connection, of the process that made it if that can be known: by TCP it can't.
func (s *Server) identify(raw net.Conn) (*connection, error) {
	all := s.o.Registry
	identify := all.Identify
	if raw.RemoteAddr().Network() != "unix" {
		identify = func(net.Conn) (*registry.Client, error) { return all.Enter(process.Unknown()) }
	}
	client, err := identify(raw)
	if err != nil {
		s.refused("connect", err)
		return nil, err
	}
	return &connection{client: client, process: client.Process(), close: raw.Close}, nil
}

// conns are the open connections, also those that have said nothing yet.
type conns struct {
	mu     sync.Mutex
	open   map[net.Conn]struct{}
	closed bool
}

// add adds a connection, if there may be one more.
func (c *conns) add(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.open[conn] = struct{}{}
	}
	return !c.closed
}

func (c *conns) remove(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, conn)
}

// close closes all connections, also those that are still to come.
func (c *conns) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for conn := range c.open {
		_ = conn.Close() // its owner notices
	}
}

// each calls a function with each connection.
func (c *conns) each(do func(net.Conn)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.open {
		do(conn)
	}
}
