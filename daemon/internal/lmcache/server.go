package lmcache

import (
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ringcache/ringcache/daemon/internal/fair"
	"github.com/ringcache/ringcache/daemon/internal/latency"
	"github.com/ringcache/ringcache/daemon/internal/process"
	"github.com/ringcache/ringcache/daemon/internal/registry"
	"github.com/ringcache/ringcache/daemon/internal/tracing"
	"github.com/ringcache/ringcache/internal/loglimit"
	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/tier"
)

// Options describe a Server.
type Options struct {
	Registry *registry.Registry
	Rooms    *fair.Rooms // that calls have a part of
	// Store and Memory are those of the registry, for events of KV; without Memory there are none.
	Store   *tier.Store
	Memory  tier.MemoryLevel
	Segment tier.Segment // of the memory level of the registry's store
	Dir     string       // of the segment
	// ChunkSize is how many tokens a chunk has, at least: the first engine of 0.5.7 makes it a multiple of
	// its blocks. 0 is 256.
	ChunkSize int
	// State is the file in which the server keeps what outlives it; empty is none.
	State string
	// Engine tells engines apart whose KV differs though they register the same: it is the operator's word
	// for the release and the kind of attention. Only engines behind servers with the same word share
	// objects.
	Engine string
	// Bodies is set if no engine maps the segment: bytes come and go within messages.
	Bodies bool
	// Tracer makes spans of calls; nil makes none.
	Tracer *tracing.Tracer
	// Lock is in place of LockTime, for tests. 0 is LockTime.
	Lock   time.Duration
	Logger *slog.Logger // nil is silent
}

// Server has the rules of LMCache's multiprocess protocol, whatever carries its messages. Its methods may be
// called from any goroutine.
type Server struct {
	o   Options
	log *slog.Logger

	patience   time.Duration // for lower levels
	maxMessage int

	counts counts
	took   map[string]*latency.Meter // by name of the call; never changes
	events events

	odd  loglimit.Limit // calls that are refused
	save loglimit.Limit // failures to write the file

	saving  sync.Mutex // a goroutine that writes the file has it
	unsaved error      // why it could not be written the last time; who has saving may read and set it

	owners owners

	mu      sync.Mutex // guards what follows, for moments
	state   state
	dirty   bool               // the file is older than state
	served  map[string]*client // by ID: with a connection, or with look-ups
	chains  *chains
	workers workers
}

// LockTime is how long a request may wait between its look-up and its load, and a store until its end.
const LockTime = 5 * time.Minute

// maxPending is how long a look-up is pending: a level that hangs is no reason to wait for ever.
const maxPending = 30 * time.Second

// protocol is the name of the protocol in the registry.
const protocol = "lmcache"

// NewServer returns a server, with the registrations of an earlier one.
func NewServer(o Options) (*Server, error) {
	if o.ChunkSize == 0 {
		o.ChunkSize = 256
	}
	if err := (kv.Scheme{ChunkTokens: o.ChunkSize}).Validate(); err != nil {
		return nil, fmt.Errorf("lmcache: %w", err)
	}
	if o.Lock == 0 {
		o.Lock = LockTime
	}
	s := &Server{
		o: o, log: o.Logger, served: map[string]*client{},
		patience: maxPending, maxMessage: maxMessage,
	}
	s.took = make(map[string]*latency.Meter, len(methods))
	for name := range methods {
		s.took[name] = &latency.Meter{}
	}
	s.workers = workers{s: s, asked: map[int64]bool{}}
	s.events.init(o)
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if o.Dir != "" {
		s.workers.segment = segmentOf(filepath.Join(o.Dir, o.Segment.Name))
	}
	var err error
	if s.state, err = loadState(o.State, o.Segment.Generation); err != nil {
		s.log.Warn("the registrations of engines, and quotas set by HTTP, are lost: restart engines that do not register again, and set the quotas", "error", err)
	}
	maps.DeleteFunc(s.state.Instances, func(_ string, i *instance) bool { return i.Layout.Engine != o.Engine })
	if s.state.Minimum != o.ChunkSize { // registrations are for chunks of a size
		s.state.Minimum, s.state.Chunk, s.state.Instances = o.ChunkSize, 0, map[string]*instance{}
	}
	if s.state.Chunk != 0 && (kv.Scheme{ChunkTokens: s.state.Chunk}).Validate() != nil {
		s.state.Chunk = 0
	}
	return s, nil
}

// unlock gives the lock back, and writes the file if that is older. When unlock returns it is written, or the
// log says why not.
func (s *Server) unlock() { _ = s.unlockSaved() }

// unlockSaved is unlock for those who have to know.
func (s *Server) unlockSaved() error {
	dirty := s.dirty
	s.mu.Unlock()
	if !dirty {
		return nil
	}
	return s.saveState()
}

// saveState writes the file, while others may have the lock.
func (s *Server) saveState() error {
	s.saving.Lock()
	defer s.saving.Unlock()
	s.mu.Lock()
	b, err := s.state.marshal()
	dirty := s.dirty
	s.dirty = false
	s.mu.Unlock()
	if !dirty { // another call has written it
		return s.unsaved
	}
	if err == nil {
		err = writeState(s.o.State, b)
	}
	if err != nil {
		s.save.Warn(s.log, "what outlives the daemon can't be written: after a restart engines have to register again, and quotas set by HTTP are as before", "file", s.o.State, "error", err)
	}
	s.unsaved = err
	return err
}

// chunkSize returns the tokens of a chunk, and settles them.
func (s *Server) chunkSize() int {
	s.mu.Lock()
	defer s.unlock()
	n, _ := s.settleChunk(1) // one token is a block of every size
	return n
}

// settleChunk returns the tokens of a chunk, which are a multiple of block if nobody has asked before. The
// caller has the lock.
func (s *Server) settleChunk(block int) (int, error) {
	if s.state.Chunk == 0 {
		n, err := kv.AlignChunk(s.o.ChunkSize, block)
		if err != nil {
			return 0, err
		}
		s.state.Chunk = n
		s.dirty = true
	}
	if s.chains == nil {
		var err error
		if s.chains, err = newChains(s.state.Chunk); err != nil {
			return 0, err
		}
	}
	return s.state.Chunk, nil
}

// negotiateChunkSize returns the tokens of a chunk for an engine whose blocks have so many.
func (s *Server) negotiateChunkSize(block int64) (int, error) {
	s.mu.Lock()
	defer s.unlock()
	n, err := s.settleChunk(bounded(block))
	if err == nil && (block < 1 || int64(n)%block != 0) {
		err = fmt.Errorf("chunks have %d tokens, which is no multiple of the %d of the engine's blocks; "+
			"give a chunk size that is one of both, or run another server for this engine: %w", n, block, fs.ErrInvalid)
	}
	if err != nil {
		return 0, fmt.Errorf("lmcache: %w", err)
	}
	return n, nil
}

// client is one client of LMCache: the scheduler of an engine, or a worker.
type client struct {
	id string

	// Guarded by the lock of the server.
	version   release
	connected bool
	process   process.ID // of the last connection
	looks     bool       // it has looked up, so it is a scheduler

	mu       sync.Mutex        // a call on the session has it, and it guards what follows
	session  *registry.Session // nil without a connection
	conn     *connection
	left     time.Time // when it had its last connection
	swept    time.Time
	removed  bool                // from the server
	requests map[string]*request // whose look-ups this client has made
	stores   map[string]*store   // by lease
	cuts     map[string]cut      // by request
}

// cut is from which chunk on a request had no room.
type cut struct {
	chunk int
	at    time.Time
}

// maxCuts is the most requests of a client of which it is known that they do not fit.
const maxCuts = 1024

// noteCut notes from which chunk on a request has no room. Of too many requests all are forgotten: what is stored of them
// then is as good as nothing, and no more.
func (c *client) noteCut(request string, chunk int) {
	if len(c.cuts) >= maxCuts {
		clear(c.cuts)
	}
	c.cuts[request] = cut{chunk, time.Now()}
}

// request has the look-ups of a request of an engine.
type request struct{ lookups []*lookup }

// sweep forgets what has ended by time: an engine that takes the server for unhealthy does not say that a
// request has ended. The caller has c.mu.
func (s *Server) sweep(c *client) {
	now := time.Now()
	if now.Sub(c.swept) < s.o.Lock/8 {
		return
	}
	c.swept = now
	for id, req := range c.requests {
		if !slices.ContainsFunc(req.lookups, func(l *lookup) bool { return now.Sub(l.begun) < s.o.Lock+s.patience }) {
			c.drop(req)
			delete(c.requests, id)
			s.owners.remove(id, c)
		}
	}
	maps.DeleteFunc(c.stores, func(_ string, st *store) bool { return now.Sub(st.at) > s.o.Lock })
	maps.DeleteFunc(c.cuts, func(_ string, x cut) bool { return now.Sub(x.at) > s.o.Lock })
}

// release ends leases. What is not there is skipped. The caller has c.mu.
func (c *client) release(names ...string) {
	for len(names) > 0 && c.session != nil {
		rest, err := c.session.Release(names)
		if err != nil {
			return // all leases have ended, or another connection has the session
		}
		names = rest
	}
}

// connection is a connection of a process, which may have several clients.
type connection struct {
	client  *registry.Client
	process process.ID
	close   func() error
}

// clientOf returns the client of an ID, locked, with a session that the connection uses from now on.
func (s *Server) clientOf(by caller) (*client, error) {
	for {
		c := s.serve(by.id, by.release)
		c.mu.Lock()
		if c.removed {
			c.mu.Unlock()
			continue
		}
		if c.conn == by.conn {
			s.sweep(c)
			return c, nil
		}
		label := "lmcache " + strconv.Itoa(by.conn.process.PID)
		session, err := s.o.Registry.Join(by.conn.client, protocol, by.id, label, func() {})
		if err != nil {
			s.removeUnused(c)
			c.mu.Unlock()
			return nil, err
		}
		c.session, c.conn = session, by.conn
		s.setConnection(c, by.conn.process, true)
		return c, nil
	}
}

// setConnection notes whether a client has a connection, and of which process the last one was.
func (s *Server) setConnection(c *client, id process.ID, connected bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.process, c.connected = id, connected
}

// note notes the release of a client, by the service that it calls, and that the client is there: one that
// only pings has its session again after a restart.
func (s *Server) note(by caller) {
	c, err := s.clientOf(by)
	if err != nil {
		s.refused("connect", err)
		return
	}
	c.mu.Unlock()
}

// ownersOf returns the clients whose look-ups a load of a process may end: those of its own engine, if they
// are known.
func (s *Server) ownersOf(request string, worker process.ID) []*client {
	all := s.owners.clients(request)
	s.mu.Lock()
	defer s.mu.Unlock()
	own := slices.DeleteFunc(slices.Clone(all), func(c *client) bool { return !s.state.sameEngine(c.process, worker) })
	if len(own) > 0 {
		return own
	}
	return all
}

// serve returns the client of an ID, whose release r is if that is known.
func (s *Server) serve(id string, r release) *client {
	s.mu.Lock()
	defer s.unlock()
	c := s.served[id]
	if c == nil {
		c = &client{id: id, requests: map[string]*request{}, stores: map[string]*store{}, cuts: map[string]cut{}}
		s.served[id] = c
	}
	if r == unknown {
		r = releases[s.state.Clients[id]]
	}
	if r != unknown {
		s.setRelease(c, r)
	}
	return c
}

// setRelease notes the release of a client, and keeps it if there is room. The caller has the lock.
func (s *Server) setRelease(c *client, r release) {
	c.version = r
	known := releases[s.state.Clients[c.id]]
	if r != known && (known != unknown || len(s.state.Clients) < maxClients || s.state.forgetRelease(s.served)) {
		s.state.Clients[c.id] = r.String()
		s.dirty = true
	}
}

var releases = map[string]release{since056.String(): since056, since057.String(): since057}

// maxClients bounds the clients whose releases are kept.
const maxClients = 4096

// closed notes the end of a connection. What its clients have stays, as the registry says, and they may come
// back by another connection.
func (s *Server) closed(conn *connection) {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.served))
	s.mu.Unlock()
	now := time.Now()
	for _, c := range all {
		c.mu.Lock()
		if c.conn == conn {
			c.session.Leave()
			c.session, c.conn, c.left = nil, nil, now
			s.setConnection(c, conn.process, false)
		}
		s.removeUnused(c)
		c.mu.Unlock()
	}
	conn.client.Leave()
}

// removeUnused removes a client that has no connection, and whose look-ups are none or have ended by time.
// The caller has c.mu.
func (s *Server) removeUnused(c *client) {
	if c.removed || c.conn != nil || len(c.requests)+len(c.stores) > 0 && time.Since(c.left) <= 2*s.o.Lock {
		return
	}
	c.removed = true
	for id := range c.requests {
		s.owners.remove(id, c)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served[c.id] == c { // another one may have the ID by now
		delete(s.served, c.id)
	}
}

// refused logs a call that can't be answered as the client wants, seldom.
func (s *Server) refused(call string, err error) {
	s.odd.Warn(s.log, "a call of an engine was refused", "call", call, "error", err)
}

// clear deletes all KV that no lease has, in the background.
func (s *Server) clear(by caller) error {
	c, err := s.clientOf(by)
	if err != nil {
		return err
	}
	defer c.mu.Unlock()
	return c.session.ClearPrefix(kv.SpacePrefix)
}
