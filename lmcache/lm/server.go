package lm

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/ringcache/ringcache/internal/accept"
	"github.com/ringcache/ringcache/internal/loglimit"
)

// Options describe a Server. Open is needed.
type Options struct {
	// Open returns the Store of a connection. end closes the connection, and may be called at any time. An
	// error refuses the connection.
	Open func(conn net.Conn, end func()) (Store, error)
	// MaxValue is the most bytes of a value that is stored. What is larger is received and dropped, since a
	// client can't be answered. 0 is 1 GiB.
	MaxValue int64
	// MaxConnections is the most connections at a time; others are closed. 0 is 1024.
	MaxConnections int
	// MoveTime is how long the rest of a header, or a value, may be on its way; 0 is two minutes. Between requests
	// a client may be silent for as long as it likes.
	MoveTime time.Duration
	// From, if not nil, is another server, such as LMCache's own one that this one takes the place of. What a
	// client asks for and this server does not have is asked of that one, and stored.
	From   *ClientOptions
	Logger *slog.Logger // nil is silent
}

// Validate reports what is wrong with options, as an fs.ErrInvalid.
func (o Options) Validate() error {
	if o.Open == nil || o.MaxValue < 0 || o.MaxConnections < 0 || o.MoveTime < 0 {
		return fmt.Errorf("lm: a server needs Open, and bounds of at least 0: %w", fs.ErrInvalid)
	}
	return nil
}

// Server serves lm://. Its methods may be called from any goroutine.
type Server struct {
	o    Options
	from *source        // nil without From
	odd  loglimit.Limit // what ends a connection
	big  loglimit.Limit // what is not stored

	ctx     context.Context //nolint:containedctx // of all requests
	end     context.CancelFunc
	running sync.WaitGroup // listeners and connections
	ended   sync.Once

	mu        sync.Mutex // guards what follows
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	closing   bool
}

// NewServer returns a server, which serves until Shutdown.
func NewServer(o Options) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.MaxValue == 0 {
		o.MaxValue = 1 << 30
	}
	if o.MaxConnections == 0 {
		o.MaxConnections = 1024
	}
	if o.MoveTime == 0 {
		o.MoveTime = 2 * time.Minute
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{o: o, listeners: map[net.Listener]struct{}{}, conns: map[*conn]struct{}{}}
	if o.From != nil {
		s.from = newSource(s, *o.From)
	}
	s.ctx, s.end = context.WithCancel(context.Background())
	return s, nil
}

// Serve answers the clients of a listener until Shutdown, which closes it; then it returns nil.
func (s *Server) Serve(l net.Listener) error {
	if !s.enter(func() { s.listeners[l] = struct{}{} }) {
		return l.Close()
	}
	defer s.leave(func() { delete(s.listeners, l) })
	err := accept.Loop(l, s.isClosing, s.accept, func(err error) {
		s.odd.Warn(s.o.Logger, "a connection of lm:// could not be accepted", "error", err)
	})
	if err != nil {
		return fmt.Errorf("lm: %w", err)
	}
	return nil
}

// accept serves a connection, if there may be one more.
func (s *Server) accept(raw net.Conn) {
	c := &conn{server: s, raw: raw}
	full := false
	if !s.enter(func() {
		if full = len(s.conns) >= s.o.MaxConnections; !full {
			s.conns[c] = struct{}{}
		}
	}) {
		_ = raw.Close() // nobody is told
		return
	}
	if full {
		s.running.Done()
		s.odd.Warn(s.o.Logger, "a connection of lm:// was closed, since there are as many as there may be",
			"connections", s.o.MaxConnections)
		_ = raw.Close() // nobody is told
		return
	}
	go func() {
		defer s.leave(func() { delete(s.conns, c) })
		defer func() { _ = raw.Close() }()
		if err := c.serve(); err != nil && !s.isClosing() {
			s.odd.Warn(s.o.Logger, "a connection of lm:// was closed", "error", err)
		}
	}()
}

// enter notes something that runs, unless the server ends.
func (s *Server) enter(note func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.running.Add(1)
	note()
	return true
}

// leave ends an enter.
func (s *Server) leave(note func()) {
	s.mu.Lock()
	note()
	s.mu.Unlock()
	s.running.Done()
}

func (s *Server) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// Shutdown closes the listeners, lets requests that are under way end until ctx ends, and closes the connections. It
// waits for all of them.
func (s *Server) Shutdown(ctx context.Context) {
	s.mu.Lock()
	s.closing = true
	for l := range s.listeners {
		_ = l.Close() // Serve notices
	}
	for c := range s.conns {
		c.finish()
	}
	s.mu.Unlock()
	stop := context.AfterFunc(ctx, func() {
		s.end()
		s.mu.Lock()
		defer s.mu.Unlock()
		for c := range s.conns {
			_ = c.raw.Close() // its goroutine notices
		}
	})
	defer stop()
	s.running.Wait()
	s.end()
	if s.from != nil {
		s.ended.Do(s.from.close)
	}
}
