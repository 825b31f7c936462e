package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/ringcache/ringcache/daemon/internal/fair"
	"github.com/ringcache/ringcache/daemon/internal/registry"
	"github.com/ringcache/ringcache/daemon/internal/tracing"
	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/internal/accept"
	"github.com/ringcache/ringcache/internal/loglimit"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/tier"
)

// Server serves the protocol of package daemon/wire on any number of listeners. Its methods may be called from any
// goroutine.
type Server struct {
	o        ServerOptions
	log      *slog.Logger
	records  *asyncLog // nil if whoever made the log flushes it
	registry *registry.Registry
	segment  wire.Segment
	started  time.Time
	meter    meter
	rooms    *fair.Rooms

	patience patience
	features []string // of the protocol, see docs/daemon.md; none yet

	tracer *tracing.Tracer // nil makes no spans. Set before Serve.

	layouts func() []string // of KV caches, as JSON; nil if no engine can register one. Set before Serve.

	panic loglimit.Limit
	busy  loglimit.Limit
	away  loglimit.Limit // errors of listeners

	full loglimit.Limit // clients ask for room as often as they like

	ending context.Context // ends what is done in the background
	end    context.CancelFunc
	work   sync.WaitGroup // connections, and what is done in the background
	closed chan struct{}

	mu        sync.Mutex // guards what follows
	limits    Limits
	listeners map[net.Listener]struct{}
	conns     map[*connection]struct{}
	refusing  int // connections that are being refused
	closing   bool
}

// NewServer takes over the leases of the daemon before, and returns a server, which has to be ended by
// Shutdown. Leases of processes that are dead end at once; the others wait for their clients.
func NewServer(o ServerOptions) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Server{
		o: o, log: o.Logger, started: time.Now(), limits: o.Limits.filled(o.Memory), patience: o.patience,
		closed:    make(chan struct{}),
		listeners: map[net.Listener]struct{}{}, conns: map[*connection]struct{}{}, rooms: o.rooms,
	}
	if s.patience == (patience{}) {
		s.patience = ordinaryPatience
	}
	if s.rooms == nil {
		s.rooms = newRooms()
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	var h slog.Handler
	h, s.records = newAsyncHandler(s.log.Handler())
	s.log = slog.New(h)
	var err error
	if s.segment, err = segmentOf(o); err != nil {
		return nil, err
	}
	if s.registry = o.registry; s.registry == nil {
		o.Logger = s.log
		if s.registry, err = openRegistry(o); err != nil {
			s.records.flush(flushTime)
			return nil, err
		}
	}
	s.ending, s.end = context.WithCancel(context.Background())
	return s, nil
}

// segmentOf describes the segment of the memory level.
func segmentOf(o ServerOptions) (wire.Segment, error) {
	seg := o.Memory.Segment()
	path, err := shmfile.Path(o.ShmDir, seg.Name)
	if err != nil {
		return wire.Segment{}, fmt.Errorf("daemon: the segment of the memory level: %w", err)
	}
	f, _, err := shmfile.Open(path, false)
	if err != nil {
		return wire.Segment{}, fmt.Errorf("daemon: the segment of the memory level is not where it should be: %w", err)
	}
	_, inode, err := shmfile.Identity(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return wire.Segment{}, err
	}
	return wire.Segment{Name: seg.Name, Size: seg.Size, Generation: seg.Generation, Inode: inode}, nil
}

// checkSegment reports that clients can't find the segment any more.
func (s *Server) checkSegment() error {
	now, err := segmentOf(s.o)
	switch {
	case err != nil:
		return fmt.Errorf("the segment %s was removed or replaced: restart the daemon (%w)", s.segment.Name, err)
	case now != s.segment:
		return fmt.Errorf("the segment %s was removed or replaced: restart the daemon", s.segment.Name)
	}
	return nil
}

// Serve answers the clients of a listener, of a unix socket, until Shutdown, which closes it; then it returns
// nil. Clients of another user are refused.
func (s *Server) Serve(l net.Listener) error {
	if l.Addr().Network() != "unix" {
		return fmt.Errorf("daemon: the listener %v is not one of a unix socket, and there is no other way to know who is connected: %w", l.Addr(), fs.ErrInvalid)
	}
	if !s.listen(l) {
		return l.Close()
	}
	defer s.forget(l)
	err := accept.Loop(l, s.isClosing, s.accept, func(err error) {
		s.away.Warn(s.log, "a connection could not be accepted: see to what the error says, such as the limit of open files", "socket", l.Addr(), "error", err)
	})
	if err != nil {
		return fmt.Errorf("daemon: %w", err)
	}
	return nil
}

// listen notes a listener, which Shutdown closes. It reports false when the server ends.
func (s *Server) listen(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.listeners[l] = struct{}{}
	return true
}

// forget takes back listen.
func (s *Server) forget(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, l)
}

func (s *Server) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// Shutdown ends the server: it closes the listeners, lets requests that are under way finish, and closes the
// connections. If ctx ends first, connections are closed at once, and the error is that of ctx. All leases
// stay as they are, for the next server.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	first := !s.closing
	s.closing = true
	var err error
	for l := range s.listeners {
		err = errors.Join(err, l.Close())
	}
	clear(s.listeners)
	for c := range s.conns {
		c.finish()
	}
	s.mu.Unlock()
	s.end()
	if first {
		go func() {
			s.work.Wait()
			if s.o.registry == nil {
				s.registry.Close()
			}
			s.records.flush(flushTime)
			close(s.closed)
		}()
	}
	select {
	case <-s.closed:
		return err
	case <-ctx.Done():
	}
	s.mu.Lock()
	for c := range s.conns {
		c.close()
	}
	s.mu.Unlock()
	<-s.closed
	return errors.Join(err, fmt.Errorf("daemon: shutting down: %w", context.Cause(ctx)))
}

// SetLimits changes the limits. What is beyond new ones already stays.
func (s *Server) SetLimits(l Limits) error {
	if err := l.Validate(); err != nil {
		return err
	}
	l = l.filled(s.o.Memory)
	s.mu.Lock()
	s.limits = l
	s.mu.Unlock()
	s.registry.SetLimits(l.forAll(s.o.Memory))
	return nil
}

// Leases lists the open leases, in the order of their names, but at most 16384.
func (s *Server) Leases() []wire.Lease { return s.leases(nil) }

// leases is Leases, with how many of some objects each has.
func (s *Server) leases(keys []tier.Key) []wire.Lease {
	now := time.Now()
	if s.o.now != nil {
		now = s.o.now()
	}
	found := s.registry.Leases(maxListed, keys...)
	out := make([]wire.Lease, len(found))
	for i, l := range found {
		if l.Protocol != protocol && l.Protocol != "" {
			l.ID = l.Protocol + "/" + l.ID
		}
		out[i] = wire.Lease{
			Name: text(l.ID), Client: text(l.Label), PID: l.PID, Pinned: l.Pinned, Reserved: l.Reserved, Bytes: l.Bytes,
			Waiting: l.Waiting, Names: l.Has,
		}
		if !l.Expired {
			out[i].Seconds = max(1, int64((l.Until.Sub(now)+time.Second-1)/time.Second)) // 0 has another meaning
		}
	}
	return out
}

// text returns what can be sent: leases that no daemon made may have any bytes.
func text(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

// maxListed bounds a reply: a lease takes at most 450 bytes of it.
const maxListed = 16 << 10

// State reports what the daemon has and does now. It does no input or output.
func (s *Server) State() wire.State {
	st, n := s.o.Store.State(), s.registry.Counts()
	out := wire.State{
		Sessions: n.Sessions, Leases: n.Leases, Fetches: st.Fetches, Backlog: st.Backlog, Clearing: n.Clearing,
		Seconds: int64(time.Since(s.started) / time.Second), Hits: n.Use.Hits, Misses: n.Use.Misses,
		Stored: n.Use.Stored,
		Recent: &wire.Use{
			Seconds: int64(n.RecentTime / time.Second), Hits: n.Recent.Hits, Misses: n.Recent.Misses,
			Stored: n.Recent.Stored,
		},
	}
	for _, l := range st.Levels {
		out.Levels = append(out.Levels, levelOf(l))
	}
	return out
}

func levelOf(l tier.LevelState) wire.Level {
	u := l.Usage
	return wire.Level{
		Name: l.Name, Away: l.Away, Objects: u.Objects, Bytes: u.Bytes, Capacity: u.Capacity, Held: u.Held,
		Backlog: l.Backlog,
	}
}
