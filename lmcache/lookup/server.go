package lookup

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"sync"
	"time"

	"github.com/go-zeromq/zmq4"

	"github.com/ringcache/ringcache/internal/accept"
	"github.com/ringcache/ringcache/internal/loglimit"
	"github.com/ringcache/ringcache/internal/zmtp"
	"github.com/ringcache/ringcache/kv"
)

// ServerOptions are the options of NewServer.
type ServerOptions struct {
	// Lookup returns how many tokens of a request are stored, from the first one on. What it finds is to be kept until
	// the worker has loaded the request, or for so long as a scheduler may take. ctx ends with the server. After an
	// error, which is logged, the answer is 0.
	Lookup func(ctx context.Context, r Request) (stored int, err error)
	// Undelivered, if not nil, is told a request whose answer could not be sent: the scheduler has not waited, and
	// computes all of it. So what Lookup keeps for it need not be kept.
	Undelivered func(r Request)
	// Blending says that questions have tokens: enable_blending.
	Blending bool
	// Hasher, if not nil, is how chunks are hashed here. Schedulers that hash otherwise are reported to Logger.
	Hasher *kv.Hasher
	// MaxMessage bounds a question, in bytes. 0 is 4 MiB: about 300,000 chunks, or with blending 800,000 tokens.
	MaxMessage int64
	// MaxConns bounds the connections. 0 is 32. An engine has one.
	MaxConns int
	// Logger gets one line a minute of each kind of trouble. nil is silent.
	Logger *slog.Logger
}

const (
	defaultMaxMessage = 4 << 20
	defaultMaxConns   = 32
	greetingTimeout   = 10 * time.Second
	sendTimeout       = 30 * time.Second
	// maxRecent is how many requests a server remembers the first hash of, with IDs of at most maxRecentID bytes.
	maxRecent   = 4096
	maxRecentID = 256
)

// A Server answers the look-ups of schedulers.
type Server struct {
	o   ServerOptions
	ctx context.Context //nolint:containedctx // of all look-ups
	end context.CancelFunc

	wait   sync.WaitGroup
	mu     sync.Mutex
	open   map[io.Closer]struct{} // listeners and connections
	conns  int
	closed bool
	recent map[string]first
	ring   [maxRecent]string // the IDs in recent, of which that at next is the oldest
	next   int

	refused, mismatch, crowded loglimit.Limit
}

// first is the first chunk of a request that was looked up.
type first struct {
	hash   string
	length int
	at     int // in ring
}

// NewServer returns a Server.
func NewServer(o ServerOptions) (*Server, error) {
	if o.Lookup == nil || o.MaxMessage < 0 || o.MaxConns < 0 {
		return nil, invalid("server: Lookup is missing, or a bound is negative")
	}
	if o.MaxMessage == 0 {
		o.MaxMessage = defaultMaxMessage
	}
	if o.MaxConns == 0 {
		o.MaxConns = defaultMaxConns
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{o: o, open: map[io.Closer]struct{}{}, recent: map[string]first{}}
	s.ctx, s.end = context.WithCancel(context.Background())
	return s, nil
}

// Serve answers the clients of a listener until Close, which closes it; then it returns nil.
func (s *Server) Serve(l net.Listener) error {
	if !s.add(l, 0) {
		return l.Close()
	}
	defer s.remove(l, 0)
	ended := func() bool { return s.ctx.Err() != nil }
	return accept.Loop(l, ended, s.accept, func(err error) {
		s.refused.Warn(s.o.Logger, "lookup: a connection is lost", "error", err)
	})
}

func (s *Server) accept(raw net.Conn) {
	if !s.add(raw, 1) {
		s.crowded.Warn(s.o.Logger, "lookup: a connection is refused: there are too many", "most", s.o.MaxConns)
		_ = raw.Close() // nobody is told
		return
	}
	go func() {
		defer s.remove(raw, 1)
		s.serve(raw)
	}()
}

// add adds a listener or a connection, unless the server has ended or has all connections that it may have.
func (s *Server) add(c io.Closer, conns int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.conns+conns > s.o.MaxConns {
		return false
	}
	s.open[c] = struct{}{}
	s.conns += conns
	s.wait.Add(1) // with the lock, so that Close waits for it
	return true
}

func (s *Server) remove(c io.Closer, conns int) {
	_ = c.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
	s.conns -= conns
	s.wait.Done()
}

// Close ends listeners and connections, and waits for them and for look-ups, whose context ends.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.end()
	for c := range s.open {
		_ = c.Close() // its owner notices
	}
	s.mu.Unlock()
	s.wait.Wait()
	return nil
}

// serve answers one client until it goes.
func (s *Server) serve(raw net.Conn) {
	c := zmtp.New(raw, zmtp.Options{MaxMessage: s.o.MaxMessage, MaxFrames: questionFrames, SendTimeout: sendTimeout})
	_, err := c.Greet(zmq4.Router, greetingTimeout)
	for err == nil {
		var frames [][]byte
		if frames, err = c.Receive(); err != nil {
			break
		}
		if len(frames) < 2 || len(frames[0]) > 0 {
			err = errors.New("a message without the empty frame of a REQ socket")
			break
		}
		var r Request
		var n int
		if r, err = readQuestion(frames[1:], s.o.Blending); err == nil {
			n, err = s.answer(r)
		}
		if err != nil {
			s.refused.Warn(s.o.Logger, "lookup: answered 0", "request", shortened(r.ID), "error", err)
		}
		if err = c.Send(appendAnswer(n)); err != nil && n > 0 && s.o.Undelivered != nil {
			s.o.Undelivered(r)
		}
	}
	gone := (*net.OpError)(nil)
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.As(err, &gone) {
		s.refused.Warn(s.o.Logger, "lookup: a connection is closed", "error", err)
	}
}

func shortened(id string) string { return id[:min(len(id), 80)] }

func (s *Server) answer(r Request) (int, error) {
	if s.o.Hasher != nil && len(r.Hashes) > 0 {
		s.compare(r)
	}
	n, err := s.o.Lookup(s.ctx, r)
	if err == nil && (n < 0 || int64(n) > math.MaxUint32) {
		err = invalid("%d tokens are stored", n)
	}
	if err != nil {
		return 0, err
	}
	return n, nil
}

// compare reports hashes that are none of ours by their form, and remembers the first one for Stored.
func (s *Server) compare(r Request) {
	size := s.o.Hasher.ChunkTokens()
	for i, hash := range r.Hashes {
		length := r.Lengths[i]
		if length > size || i < len(r.Lengths)-1 && length != size {
			s.mismatch.Warn(s.o.Logger, "lookup: a scheduler has chunks of another length, "+
				"and finds nothing of what is stored here",
				"request", shortened(r.ID), "tokens", length, "here", size)
			return
		}
		if err := s.o.Hasher.Agree(hash, nil); err != nil {
			s.mismatch.Warn(s.o.Logger, "lookup: a scheduler hashes otherwise, "+
				"and finds nothing of what is stored here",
				"request", shortened(r.ID), "error", err)
			return
		}
	}
	if len(r.ID) > maxRecentID {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.recent[r.ID]; !known {
		if old := s.ring[s.next]; s.recent[old].at == s.next { // else it was asked again, and has a newer place
			delete(s.recent, old)
		}
		s.ring[s.next] = r.ID
		s.recent[r.ID] = first{at: s.next}
		s.next = (s.next + 1) % maxRecent
	}
	s.recent[r.ID] = first{r.Hashes[0], r.Lengths[0], s.recent[r.ID].at}
}

// Stored says that a worker stores these tokens of a request, from its first one on, with the values of media
// in place. If the scheduler has looked the same request up with another hash for the first chunk, its error
// says so, once for each request, and what the scheduler hashes with if that can be found out: nothing that
// is stored will ever be found. The Server needs a Hasher for it.
func (s *Server) Stored(id string, tokens []int64) error {
	s.mu.Lock()
	f, known := s.recent[id]
	delete(s.recent, id)
	s.mu.Unlock()
	if !known || f.length > len(tokens) {
		return nil
	}
	err := s.o.Hasher.Agree(f.hash, tokens[:f.length])
	if err != nil {
		s.mismatch.Warn(s.o.Logger, "lookup: a scheduler hashes otherwise, and finds nothing of what is stored here",
			"request", shortened(id), "error", err)
	}
	return err
}
