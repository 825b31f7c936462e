package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zeromq/zmq4"
	"golang.org/x/sync/semaphore"

	"github.com/ringcache/ringcache/internal/accept"
	"github.com/ringcache/ringcache/internal/loglimit"
	"github.com/ringcache/ringcache/internal/zmtp"
	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/kv/directory"
)

// Options of a Server. Directory is needed.
type Options struct {
	Directory *directory.Directory
	// Scheme is how the workers hash chunks, for look-ups by tokens. The zero value is LMCache's default with
	// PYTHONHASHSEED=0: builtin, 256 tokens, and a shorter chunk at the end.
	Scheme kv.Scheme
	// Heartbeat is the address of the socket for heartbeats, HOST:PORT, as it is told to workers. Empty is that of its
	// listener; if that listens on all addresses, with the one by which the worker has reached this socket.
	Heartbeat string
	// MaxConnections is for each of the sockets. 0 is 8,192.
	MaxConnections int
	// MaxMemory is for messages that are being received, and large answers that are sent, in bytes. 0 is 256 MiB.
	MaxMemory int64
	// Timeout is how long a worker may take to answer a command. 0 is 30 s.
	Timeout time.Duration
	Logger  *slog.Logger // nil is silent
}

// Bounds of what a peer may send.
const (
	maxMessage  = 16 << 20
	maxFrames   = 1024
	bufferSize  = 4 << 10
	handshake   = 10 * time.Second
	slowPeer    = time.Minute // a message that has taken of MaxMemory ends in that time, in or out
	smallAnswer = 16 << 10
)

// Server is the controller.
type Server struct {
	o        Options
	hasher   *kv.Hasher
	chunk    int // tokens
	memory   *semaphore.Weighted
	commands chan struct{}
	odd      loglimit.Limit
	counts   struct{ messages, refused, connections atomic.Int64 }

	ctx  context.Context //nolint:containedctx // of commands to workers
	end  context.CancelFunc
	wait sync.WaitGroup

	mu        sync.Mutex // guards what follows
	closed    bool
	heartbeat string
	open      map[io.Closer]struct{}
}

// New returns a server without sockets.
func New(o Options) (*Server, error) {
	if o.Directory == nil {
		return nil, invalid("there is no Directory")
	}
	if o.Scheme == (kv.Scheme{}) {
		o.Scheme = kv.Scheme{Algorithm: kv.Builtin, Seed: "0", Legacy: true, KeepTail: true}
	}
	h, err := kv.NewHasher(o.Scheme)
	if err != nil {
		return nil, err
	}
	o.MaxConnections = cmp.Or(o.MaxConnections, 8<<10)
	o.MaxMemory = max(cmp.Or(o.MaxMemory, 256<<20), maxMessage)
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		o: o, hasher: h, chunk: cmp.Or(o.Scheme.ChunkTokens, kv.DefaultChunkTokens),
		memory: semaphore.NewWeighted(o.MaxMemory), commands: make(chan struct{}, maxAtOnce),
		heartbeat: o.Heartbeat, open: map[io.Closer]struct{}{},
	}
	s.ctx, s.end = context.WithCancel(context.Background())
	return s, nil
}

// Counts are messages that came, those that were refused, and connections that are open.
type Counts struct{ Messages, Refused, Connections int64 }

// Counts returns them.
func (s *Server) Counts() Counts {
	return Counts{s.counts.messages.Load(), s.counts.refused.Load(), s.counts.connections.Load()}
}

// ServePull takes what workers push, until Close.
func (s *Server) ServePull(l net.Listener) error { return s.serve(l, zmq4.Pull, s.pull) }

// ServeReply answers requests of workers and of orchestrators, until Close.
func (s *Server) ServeReply(l net.Listener) error { return s.serve(l, zmq4.Router, s.reply) }

// ServeHeartbeat answers heartbeats, until Close. Call it before ServeReply, which tells workers of it.
func (s *Server) ServeHeartbeat(l net.Listener) error {
	s.mu.Lock()
	s.heartbeat = cmp.Or(s.heartbeat, l.Addr().String())
	s.mu.Unlock()
	return s.serve(l, zmq4.Router, s.beats)
}

// Close ends everything and waits for it.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for c := range s.open {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.end()
	s.wait.Wait()
}

// add has Close close something. It reports whether the server is open.
func (s *Server) add(c io.Closer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = c.Close()
		return false
	}
	s.open[c] = struct{}{}
	s.wait.Add(1)
	return true
}

func (s *Server) remove(c io.Closer) {
	_ = c.Close()
	s.mu.Lock()
	delete(s.open, c)
	s.mu.Unlock()
	s.wait.Done()
}

// handler is what a socket does with the frames of a message: it returns those of the answer, if there is one. An error
// ends the connection.
type handler func(p *peer, frames [][]byte) (answer [][]byte, err error)

func (s *Server) serve(l net.Listener, kind zmq4.SocketType, handle handler) error {
	if !s.add(l) {
		return nil
	}
	defer s.remove(l)
	places := make(chan struct{}, s.o.MaxConnections)
	take := func(raw net.Conn) {
		select {
		case places <- struct{}{}:
		default:
			_ = raw.Close()
			s.refused("accept", errors.New("controller: there are as many connections as there may be"))
			return
		}
		if !s.add(raw) {
			<-places
			return
		}
		go func() {
			defer func() { <-places }()
			defer s.remove(raw)
			s.counts.connections.Add(1)
			defer s.counts.connections.Add(-1)
			s.connection(raw, kind, handle)
		}()
	}
	return accept.Loop(l, s.isClosed, take, func(err error) { s.refused("accept", err) })
}

func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

func (s *Server) refused(what string, err error) {
	s.counts.refused.Add(1)
	s.odd.Warn(s.o.Logger, "something was refused", "what", what, "err", err)
}

// peer is a connection.
type peer struct {
	raw  net.Conn
	held int64 // of the memory for messages
}

func (s *Server) connection(raw net.Conn, kind zmq4.SocketType, handle handler) {
	p := &peer{raw: raw}
	release := func() {
		if p.held > 0 {
			s.memory.Release(p.held)
			p.held = 0
			_ = raw.SetReadDeadline(time.Time{})
		}
	}
	defer release()
	c := zmtp.New(raw, zmtp.Options{
		MaxMessage: maxMessage, MaxFrames: maxFrames, Buffer: bufferSize, SendTimeout: handshake,
		Large: func(n int) error {
			ctx, cancel := context.WithTimeout(s.ctx, handshake)
			defer cancel()
			if err := s.memory.Acquire(ctx, int64(n)); err != nil {
				return err
			}
			p.held += int64(n)
			return raw.SetReadDeadline(time.Now().Add(slowPeer))
		},
	})
	_, err := c.Greet(kind, handshake)
	for err == nil {
		var frames, answer [][]byte
		if frames, err = c.Receive(); err != nil {
			break
		}
		answer, err = handle(p, frames)
		release()
		if err == nil && answer != nil {
			err = s.send(c, answer)
		}
	}
	gone := (*net.OpError)(nil)
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.As(err, &gone) && s.ctx.Err() == nil {
		s.refused("receive", err)
	}
}

// send sends an answer. A large one takes of the memory for messages, and a peer that does not take it loses it.
func (s *Server) send(c *zmtp.Conn, answer [][]byte) error {
	size := int64(0)
	for _, f := range answer {
		size += int64(len(f))
	}
	if size > smallAnswer {
		if size > s.o.MaxMemory || !s.memory.TryAcquire(size) {
			return fmt.Errorf("controller: there is no memory for an answer of %d bytes", size)
		}
		defer s.memory.Release(size)
		defer time.AfterFunc(slowPeer, func() { _ = c.Close() }).Stop()
	}
	return c.Send(answer)
}

// pull takes messages, one in each frame. One that is wrong does not keep the others from being taken.
func (s *Server) pull(_ *peer, frames [][]byte) ([][]byte, error) {
	for _, f := range frames {
		s.counts.messages.Add(1)
		m, err := parse(f)
		if err == nil {
			err = s.take(m)
		}
		if err != nil {
			s.refused("push", err)
		}
	}
	return nil, nil
}

// request takes the message of a REQ or a DEALER, which has an empty frame in front of it, and answers it.
func (s *Server) request(frames [][]byte, answer func(m *message) ([]byte, error)) ([][]byte, error) {
	s.counts.messages.Add(1)
	if len(frames) != 2 || len(frames[0]) > 0 {
		return nil, invalid("%d frames, not an empty one and a message", len(frames))
	}
	m, err := parse(frames[1])
	var b []byte
	if err == nil {
		b, err = answer(m)
	}
	if err != nil {
		s.refused("request", err)
		b = errorMsg(err)
	}
	return [][]byte{{}, b}, nil
}

func (s *Server) reply(p *peer, frames [][]byte) ([][]byte, error) {
	return s.request(frames, func(m *message) ([]byte, error) { return s.answer(s.ctx, m, s.heartbeatFor(p.raw)) })
}

func (s *Server) beats(_ *peer, frames [][]byte) ([][]byte, error) {
	return s.request(frames, func(m *message) ([]byte, error) {
		if m.Type != "HeartbeatMsg" {
			return nil, invalid("%s is not for the socket of heartbeats", m.Type)
		}
		return s.beat(m)
	})
}

// heartbeatFor returns the address of the socket for heartbeats, as a peer reaches it.
func (s *Server) heartbeatFor(raw net.Conn) string {
	s.mu.Lock()
	at := s.heartbeat
	s.mu.Unlock()
	host, port, err := net.SplitHostPort(at)
	if ip := net.ParseIP(host); err != nil || host != "" && (ip == nil || !ip.IsUnspecified()) {
		return at
	}
	if own, ok := raw.LocalAddr().(*net.TCPAddr); ok {
		return net.JoinHostPort(own.IP.String(), port)
	}
	return at
}
