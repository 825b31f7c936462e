package zmq

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zeromq/zmq4"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/internal/loglimit"
	"github.com/ringcache/ringcache/internal/sentinel"
	"github.com/ringcache/ringcache/internal/zmtp"
)

// Transport makes sockets. The zero value is ready to use.
type Transport struct {
	// MaxMessage bounds the bytes of one message; a peer that announces more is
	// disconnected. 0 is 256 MiB.
	MaxMessage int64
	// SendTimeout is how long a peer may take to take 64 KiB in before it is
	// disconnected. 0 is 30 s.
	SendTimeout time.Duration
	// Logger gets peers that were turned away, one a minute and how many there were
	// besides. nil is silent.
	Logger *slog.Logger
}

const (
	defaultMaxMessage  = 256 << 20
	defaultSendTimeout = 30 * time.Second
	// greetingTimeout is how long a peer may take to greet.
	greetingTimeout = 10 * time.Second
	// maxConns is how many connections a socket has at once: an engine has one. Of a socket that anybody
	// can reach it is maxUntrusted.
	maxConns     = 64
	maxUntrusted = 256
	// backlog is how many messages wait for Recv or Receive before peers have to.
	backlog = 256
)

var (
	errClosed = sentinel.New(sentinel.Closed, "zmq: the socket was closed")
	errNoPeer = errors.New("zmq: the peer is not connected")
)

// Router implements [engine.Transport].
func (t Transport) Router(endpoint string, limit int64) (engine.Socket, error) {
	return t.bind(zmq4.Router, endpoint, limit)
}

// Pull implements [engine.Transport].
func (t Transport) Pull(endpoint string) (engine.Socket, error) {
	return t.bind(zmq4.Pull, endpoint, 0)
}

func (t Transport) bind(kind zmq4.SocketType, endpoint string, limit int64) (engine.Socket, error) {
	if t.MaxMessage < 0 || t.SendTimeout < 0 || limit < 0 {
		return nil, fmt.Errorf("zmq: MaxMessage %d, SendTimeout %v, limit %d; they can't be below 0",
			t.MaxMessage, t.SendTimeout, limit)
	}
	if t.MaxMessage == 0 {
		t.MaxMessage = defaultMaxMessage
	}
	if limit > 0 {
		t.MaxMessage = limit
	}
	if t.SendTimeout == 0 {
		t.SendTimeout = defaultSendTimeout
	}
	if t.Logger == nil {
		t.Logger = slog.New(slog.DiscardHandler)
	}
	l, endpoint, err := listen(endpoint)
	if err != nil {
		return nil, err
	}
	s := &socket{
		o: t, kind: kind, endpoint: endpoint, listener: l, most: maxConns, untrusted: limit > 0,
		in: make(chan engine.Message, backlog), done: make(chan struct{}),
		conns: map[*conn]struct{}{}, peers: map[string]*conn{},
	}
	if s.untrusted {
		s.most = maxUntrusted
	}
	s.wait.Go(s.accept)
	return s, nil
}

// listen binds an endpoint and returns it as peers have to write it.
func listen(endpoint string) (net.Listener, string, error) {
	scheme, addr, _ := strings.Cut(endpoint, "://")
	network, ok := map[string]string{"tcp": "tcp", "ipc": "unix"}[scheme]
	if !ok || addr == "" {
		return nil, "", fmt.Errorf("zmq: endpoint %q is neither tcp://host:port nor ipc:///path", endpoint)
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		return nil, "", fmt.Errorf("zmq: can't bind %s: %w", endpoint, err)
	}
	if network == "unix" {
		// Whoever can connect can speak for the engine.
		if err := os.Chmod(addr, 0o600); err != nil {
			return nil, "", errors.Join(fmt.Errorf("zmq: %w", err), l.Close())
		}
		return l, endpoint, nil
	}
	return l, "tcp://" + l.Addr().String(), nil
}

// conn is the connection of one peer.
type conn struct {
	*zmtp.Conn

	// Guarded by the mutex of the socket.
	since uint64 // the socket's clock when the peer connected, or sent something last
	spoke bool   // it has sent something
}

// socket is a bound socket. What holds: conns has all connections that count, also
// those that have not greeted yet; peers has those that have greeted, by their names.
type socket struct {
	o         Transport
	kind      zmq4.SocketType
	endpoint  string
	listener  net.Listener
	most      int  // connections at once
	untrusted bool // anybody may connect
	odd       loglimit.Limit
	done      chan struct{} // closed by Close
	wait      sync.WaitGroup

	// A message goes to take, of Receive, unless others are queued and must be taken first.
	in     chan engine.Message
	taking sync.Mutex
	take   func(engine.Message) // nil before Receive
	queued int                  // messages on their way through in

	mu     sync.Mutex
	closed bool
	conns  map[*conn]struct{}
	peers  map[string]*conn
	made   uint64 // names given
	clock  uint64 // counts what peers do
}

// Endpoint implements [engine.Socket].
func (s *socket) Endpoint() string { return s.endpoint }

// Recv implements [engine.Socket].
func (s *socket) Recv(ctx context.Context) (engine.Message, error) {
	select {
	case m := <-s.in:
		s.taking.Lock()
		s.queued--
		s.taking.Unlock()
		select {
		case <-s.done: // and with it the peer's end, perhaps
			return engine.Message{}, errClosed
		default:
			return m, nil
		}
	case <-ctx.Done():
		return engine.Message{}, ctx.Err()
	case <-s.done:
		return engine.Message{}, errClosed
	}
}

// Receive implements [engine.Receiver]: the goroutine that has read a message takes it, too.
func (s *socket) Receive(take func(engine.Message)) error {
	s.taking.Lock()
	s.take = take
	s.taking.Unlock()
	for {
		select {
		case m := <-s.in:
			s.taking.Lock()
			s.hand(m)
			s.queued--
			s.taking.Unlock()
		case <-s.done:
			s.taking.Lock() // for one that is being taken
			defer s.taking.Unlock()
			return errClosed
		}
	}
}

// hand hands a message to take, unless the socket is closed. taking is held.
func (s *socket) hand(m engine.Message) {
	select {
	case <-s.done:
	default:
		s.take(m)
	}
}

// Send implements [engine.Socket].
func (s *socket) Send(peer string, frames ...[]byte) error {
	s.mu.Lock()
	c, closed := s.peers[peer], s.closed
	s.mu.Unlock()
	switch {
	case closed:
		return errClosed
	case c == nil || s.kind != zmq4.Router:
		return fmt.Errorf("%w: %s at %s", errNoPeer, peer, s.endpoint)
	}
	if err := c.Send(frames); err != nil {
		c.Close() // half a message may be on its way
		return fmt.Errorf("zmq: sending to peer %s at %s: %w", peer, s.endpoint, err)
	}
	return nil
}

// Close implements [engine.Socket].
func (s *socket) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	close(s.done)
	err := s.listener.Close()
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.wait.Wait()
	return err
}

func (s *socket) accept() {
	for {
		raw, err := s.listener.Accept()
		if err != nil {
			select {
			case <-s.done:
				return
			case <-time.After(10 * time.Millisecond): // out of descriptors, most likely
				s.odd.Warn(s.o.Logger, "zmq: accept failed", "endpoint", s.endpoint, "error", err)
				continue
			}
		}
		c := &conn{Conn: zmtp.New(raw, zmtp.Options{MaxMessage: s.o.MaxMessage, SendTimeout: s.o.SendTimeout})}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			c.Close()
			return
		}
		if len(s.conns) == s.most {
			idle := s.idle()
			if idle == nil {
				s.mu.Unlock()
				c.Close()
				s.odd.Warn(s.o.Logger, "zmq: too many connections, turned one away", "endpoint", s.endpoint)
				continue
			}
			idle.Close()
			delete(s.conns, idle) // serve sees to the rest
		}
		s.clock++
		c.since = s.clock
		s.conns[c] = struct{}{}
		s.wait.Go(func() { s.serve(c) })
		s.mu.Unlock()
	}
}

// idle returns the connection that is to make room for another: the oldest of those
// that have sent nothing; where anybody can connect, else the one that sent nothing
// for longest. It is called with mu held.
func (s *socket) idle() *conn {
	var found *conn
	for c := range s.conns {
		switch {
		case c.spoke && !s.untrusted:
		case found == nil, found.spoke && !c.spoke, found.spoke == c.spoke && c.since < found.since:
			found = c
		}
	}
	return found
}

// serve greets a peer and reads what it sends until it goes.
func (s *socket) serve(c *conn) {
	defer func() {
		c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	identity, err := c.Greet(s.kind, greetingTimeout)
	if err != nil {
		s.odd.Warn(s.o.Logger, "zmq: turned a peer away", "endpoint", s.endpoint, "error", err)
		return
	}
	// By connection, not by identity as libzmq does: otherwise who claims the identity of
	// another would get its messages, or end its connection.
	s.mu.Lock()
	s.made++
	peer := strconv.FormatUint(s.made, 10)
	s.peers[peer] = c
	s.mu.Unlock()
	var frames [][]byte
	for {
		if frames, err = c.Receive(); err != nil {
			break
		}
		s.mu.Lock()
		s.clock++
		c.since, c.spoke = s.clock, true
		s.mu.Unlock()
		if !s.deliver(c, engine.Message{Peer: peer, Identity: identity, Frames: frames}) {
			return
		}
	}
	s.mu.Lock()
	delete(s.peers, peer)
	s.mu.Unlock()
	if errors.Is(err, io.EOF) {
		err = nil
	}
	s.deliver(c, engine.Message{Peer: peer, Identity: identity, Gone: true, Err: err})
}

// deliver has a message of a connection taken, or queues it. It reports whether the
// socket is open.
func (s *socket) deliver(c *conn, m engine.Message) bool {
	s.taking.Lock()
	if s.take != nil && s.queued == 0 {
		s.hand(m)
		s.taking.Unlock()
		return true
	}
	s.queued++
	s.taking.Unlock()
	c.Keep()
	select {
	case s.in <- m:
		return true
	case <-s.done:
		return false
	}
}
