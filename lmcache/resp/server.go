package resp

import (
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/ringcache/ringcache/internal/accept"
	"github.com/ringcache/ringcache/internal/loglimit"
	"github.com/ringcache/ringcache/internal/values"
	"github.com/ringcache/ringcache/tier"
)

// Space is the space of the values of `ringcache serve`.
const Space = "lmcache resp"

// Options describe a Server. Store and Space are needed.
type Options struct {
	Store *tier.Store
	// Space is the space of all objects.
	Space string
	// Open returns the Store of a connection. end closes the connection, and may be called at any time. An
	// error refuses the connection. nil is leases of Options.Store.
	Open func(conn net.Conn, end func()) (Store, error)
	// Pins has what EXISTS has affirmed. The server closes it. nil is a lease of Options.Store.
	Pins Holder
	// Password, if not empty, is what AUTH or HELLO must say first, and User the name for it; the default is
	// "default", which AUTH with one argument means.
	User, Password string
	// Flush allows FLUSHDB and FLUSHALL, which delete all objects of the space.
	Flush bool

	// MaxConnections is how many connections are served at a time; 0 is 1024.
	MaxConnections int
	// PinTime is how long an object stays in memory that EXISTS has affirmed; 0 is 30 s. At most MaxPins
	// objects, 0 is 16384, are pinned so: those that were asked for last.
	PinTime time.Duration
	MaxPins int

	// Patience is how long a client may keep the server waiting within a command; 0 is 30 s.
	Patience time.Duration
	Logger   *slog.Logger // nil is silent
}

const (
	defaultConnections = 1024
	defaultPinTime     = 30 * time.Second
	defaultPins        = 1 << 14
	defaultPatience    = 30 * time.Second
)

// Validate reports what is wrong with the options, as an fs.ErrInvalid.
func (o Options) Validate() error {
	switch {
	case o.Store == nil:
		return fmt.Errorf("resp: Options.Store is needed: %w", fs.ErrInvalid)
	case o.Space == "" || (tier.Key{Space: o.Space, Name: "any"}).Validate() != nil:
		return fmt.Errorf("resp: the space %q can't be one of objects: %w", o.Space, fs.ErrInvalid)
	case o.MaxConnections < 0 || o.PinTime < 0 || o.MaxPins < 0 || o.Patience < 0 || o.PinTime > longest:
		return fmt.Errorf("resp: a number in Options is negative, or PinTime is longer than %v: %w",
			longest, fs.ErrInvalid)
	}
	return nil
}

func (o Options) withDefaults() Options {
	orElse(&o.User, "default")
	orElse(&o.MaxConnections, defaultConnections)
	orElse(&o.PinTime, defaultPinTime)
	orElse(&o.MaxPins, defaultPins)
	orElse(&o.Patience, defaultPatience)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func orElse[T comparable](v *T, other T) {
	var zero T
	if *v == zero {
		*v = other
	}
}

// Server serves clients of Redis. Its methods may be called from any goroutine.
type Server struct {
	o        Options
	readers  users
	writers  users
	pins     pins
	affirmed affirmed
	counts   counters
	// What others can cause as often as they like.
	refused, notAccepted, lost, notStored, malformed loglimit.Limit

	ctx    context.Context //nolint:containedctx // of all commands; ends when Shutdown closes connections
	cut    context.CancelFunc
	ending chan struct{} // closed by Shutdown, with mu
	work   sync.WaitGroup

	mu        sync.Mutex // guards what follows
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	last      uint64 // ID of a connection
}

// NewServer makes a server, which serves nobody yet. Shutdown ends it.
func NewServer(o Options) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Server{o: o.withDefaults(), listeners: map[net.Listener]struct{}{}, conns: map[*conn]struct{}{}}
	if s.o.Open == nil {
		s.o.Open = s.openOver
	}
	if s.o.Pins == nil {
		s.o.Pins = values.NewLease(s.o.Store, "resp pins "+rand.Text())
	}
	s.pins = pins{holder: s.o.Pins, most: s.o.MaxPins}
	s.ctx, s.cut = context.WithCancel(context.Background())
	s.ending = make(chan struct{})
	s.work.Go(s.keepTime)
	return s, nil
}

// Serve answers the clients of a listener until Shutdown, which closes it; then it returns nil.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.isEnding() {
		s.mu.Unlock()
		return l.Close()
	}
	s.listeners[l] = struct{}{}
	s.mu.Unlock()
	err := accept.Loop(l, s.isEnding, s.accept, func(err error) {
		s.notAccepted.Warn(s.o.Logger, "resp: a connection could not be accepted", "at", l.Addr(), "error", err)
	})
	if err != nil {
		return fmt.Errorf("resp: %w", err)
	}
	return nil
}

// accept serves a connection, or refuses it.
func (s *Server) accept(nc net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isEnding() {
		_ = nc.Close() // nobody is served any more
		return
	}
	if len(s.conns) >= s.o.MaxConnections {
		s.refuse(nc, fmt.Errorf("%d connections are the most", s.o.MaxConnections))
		return
	}
	s.last++
	c := newConn(s, nc, s.last)
	s.conns[c] = struct{}{}
	s.work.Go(c.serve)
}

// refuse closes a connection. It does not wait for the client, and so says nothing to one that does not read.
func (s *Server) refuse(nc net.Conn, why error) {
	s.counts.refused.Add(1)
	s.refused.Warn(s.o.Logger, "resp: a connection was refused", "reason", why)
	_ = nc.Close() // it was refused anyhow
}

// forget removes a connection that has ended.
func (s *Server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// Shutdown ends the server: it closes the listeners, lets commands that are under way end, and closes the
// connections, which it does at once when ctx ends. It waits for all of them.
func (s *Server) Shutdown(ctx context.Context) {
	s.mu.Lock()
	first := !s.isEnding()
	if first {
		close(s.ending)
	}
	for l := range s.listeners {
		_ = l.Close() // Serve notices
	}
	clear(s.listeners)
	for c := range s.conns {
		c.finish()
	}
	s.mu.Unlock()
	stop := context.AfterFunc(ctx, func() {
		s.cut()
		s.mu.Lock()
		defer s.mu.Unlock()
		for c := range s.conns {
			_ = c.net.Close() // its goroutine notices
		}
	})
	defer stop()
	s.work.Wait()
	s.cut()
	if first {
		s.pins.close()
	}
}

// isEnding reports whether Shutdown was called.
func (s *Server) isEnding() bool {
	select {
	case <-s.ending:
		return true
	default:
		return false
	}
}

// keepTime ends pins whose time has passed.
func (s *Server) keepTime() {
	ticks := time.NewTicker(max(s.o.PinTime/4, time.Millisecond))
	defer ticks.Stop()
	for {
		select {
		case <-s.ending:
			return
		case now := <-ticks.C:
			s.pins.expire(now.Add(-s.o.PinTime))
		}
	}
}
