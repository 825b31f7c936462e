package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// connections has all connections to one server. They can be closed all at once, also while the client uses
// them, so that no call waits for a server that is down.
type connections struct {
	settings *settings
	// resolve, if not nil, returns the address to dial, instead of the given one.
	resolve func(ctx context.Context) (string, error)

	mu   sync.Mutex
	open map[*conn]struct{} // guarded by mu; nil until the first connection
}

// conn is a connection in the set.
type conn struct {
	net.Conn
	set  *connections
	made time.Time
}

func (s *connections) add(raw net.Conn) *conn {
	c := &conn{raw, s, time.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[*conn]struct{}{}
	}
	s.open[c] = struct{}{}
	return c
}

// SyscallConn lets the client test whether the server has closed the connection.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	if s, ok := c.Conn.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

func (c *conn) Close() error {
	c.set.mu.Lock()
	delete(c.set.open, c)
	c.set.mu.Unlock()
	return c.Conn.Close()
}

// dial makes a connection for the client. It never fails: a connection that can't be made fails when it is
// first used. After an error here the client would write to its log, answer later calls with the old error,
// and probe the server by itself, beside the breaker.
func (s *connections) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := s.connect(ctx, network, addr)
	if err != nil {
		return &noConn{err: &dialError{err}}, nil
	}
	return c, nil
}

// connect dials, makes TLS if it is wanted, and puts a guard around the connection.
func (s *connections) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	if s.resolve != nil {
		var err error
		if addr, err = s.resolve(ctx); err != nil {
			return nil, err
		}
		network = "tcp"
	}
	raw, err := dialPlain(ctx, s.settings, network, addr)
	if err != nil {
		return nil, err
	}
	c := s.add(raw)
	if s.settings.TLS == nil {
		return &plainGuard{guard{Conn: c}, c}, nil
	}
	t, err := handshake(ctx, c, s.settings.TLS, addr)
	if err != nil {
		c.Close()
		return nil, err
	}
	return &guard{Conn: t}, nil
}

func dialPlain(ctx context.Context, s *settings, network, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: s.Timeout, KeepAlive: 30 * time.Second}
	return d.DialContext(ctx, network, addr)
}

// handshake begins TLS. The connection stays the caller's if it fails.
func handshake(ctx context.Context, c net.Conn, config *tls.Config, addr string) (net.Conn, error) {
	if config.ServerName == "" {
		config = config.Clone()
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			host = "localhost" // a socket of this machine
		}
		config.ServerName = host
	}
	t := tls.Client(c, config)
	if err := t.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS with %s: %w", addr, err)
	}
	return t, nil
}

// close closes the connections that were made before a time. Calls that use one fail at once.
func (s *connections) close(before time.Time) {
	var old []*conn
	s.mu.Lock()
	for c := range s.open {
		if c.made.Before(before) {
			old = append(old, c)
			delete(s.open, c)
		}
	}
	s.mu.Unlock()
	for _, c := range old {
		c.Conn.Close()
	}
}

// dialError is why there is no connection.
type dialError struct{ error }

func (e *dialError) Unwrap() error { return e.error }

// noConn is a connection that was not made.
type noConn struct{ err error }

func (c *noConn) Read([]byte) (int, error)         { return 0, c.err }
func (c *noConn) Write([]byte) (int, error)        { return 0, c.err }
func (c *noConn) Close() error                     { return nil }
func (c *noConn) LocalAddr() net.Addr              { return noAddr{} }
func (c *noConn) RemoteAddr() net.Addr             { return noAddr{} }
func (c *noConn) SetDeadline(time.Time) error      { return nil }
func (c *noConn) SetReadDeadline(time.Time) error  { return nil }
func (c *noConn) SetWriteDeadline(time.Time) error { return nil }

// SyscallConn fails, so that the client discards the connection if it comes out of the pool: the call for
// which it was dialed has ended, and the server may be up by now.
func (c *noConn) SyscallConn() (syscall.RawConn, error) { return nil, c.err }

type noAddr struct{}

func (noAddr) Network() string { return "none" }
func (noAddr) String() string  { return "none" }
