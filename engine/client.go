package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
)

// everybody is the weight of a barrier; a request weighs 1.
const everybody = 1 << 40

// Client is the frontend of one engine, or of one after the other.
type Client struct {
	o         Options
	handshake Socket
	dir       string // of the sockets; empty if they are TCP
	gate      *semaphore.Weighted
	wait      sync.WaitGroup // the handshake's goroutines

	asleep   atomic.Bool
	starting sync.Mutex    // held by Start and Close
	closing  chan struct{} // closed by Close, which
	over     chan struct{} // is closed when it returns
	closeErr error         // with this error

	mu       sync.Mutex
	closed   bool
	s        *session        // nil before the first
	live     bool            // s has started
	hellos   map[string]bool // connections that said hello: true if they got their answer
	sessions int
	stats    Stats
}

// Stats are counts since the client was made.
type Stats struct {
	Requests int64 // sent
	Finished int64 // to their regular end
	Failed   int64 // aborted, or ended by the engine
	Refused  int64 // not sent
	Resent   int64 // children sent again, since the engine lacked items
	Fences   int64 // passed
	Starts   int64 // engines that became ready
	InFlight int   // requests now
}

// New makes a client, and binds the socket of the handshake: from now on an engine
// can be told of it.
func New(o Options) (*Client, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{o: o, gate: semaphore.NewWeighted(everybody), closing: make(chan struct{}), over: make(chan struct{}), hellos: map[string]bool{}}
	if o.Bind == "" {
		if c.dir, err = socketDir(o.Dir); err != nil {
			return nil, err
		}
	}
	if c.handshake, err = o.Transport.Bind(Router, o.Handshake, maxHandshake); err != nil {
		return nil, errors.Join(err, c.removeDir())
	}
	c.wait.Go(c.readHandshake)
	return c, nil
}

// maxHandshake bounds what a peer may say before it is known to be an engine.
const maxHandshake = 64 << 10

// socketDir makes a folder for sockets, whose paths may have 107 bytes.
func socketDir(in string) (string, error) {
	const most = 107 - len("/out") - len("4294967295")
	dir, err := os.MkdirTemp(in, "ringcache-")
	if err == nil && len(dir) > most {
		if err = os.Remove(dir); err == nil && in != "" {
			return "", fmt.Errorf("%w: Options.Dir %q is too long for the path of a socket; use a shorter one", ErrInvalid, in)
		}
		dir, err = os.MkdirTemp("/tmp", "ringcache-")
	}
	if err != nil {
		return "", fmt.Errorf("engine: no folder for the sockets: %w", err)
	}
	return dir, nil
}

func (c *Client) removeDir() error {
	if c.dir == "" {
		return nil
	}
	return os.RemoveAll(c.dir)
}

// Address returns what the engine has to be started with.
func (c *Client) Address() Address {
	a := Address{Handshake: c.handshake.Endpoint()}
	if addr, ok := strings.CutPrefix(a.Handshake, "tcp://"); ok {
		a.Host, a.Port, _ = net.SplitHostPort(addr)
	}
	if shared, ok := c.o.Cache.(*mmcache.Shared); ok {
		a.Segment = shared.Name()
	}
	if a.Segment != "" {
		a.Env = []string{pycompat.SegmentEnv + "=" + a.Segment}
	}
	return a
}

// mirrored reports whether the engine keeps the items, which its cache mirrors.
func (c *Client) mirrored() bool {
	_, ok := c.o.Cache.(*mmcache.Mirrored)
	return ok
}

// sockets binds those of a session.
func (c *Client) sockets() (in, out Socket, err error) {
	c.mu.Lock()
	c.sessions++
	n := strconv.Itoa(c.sessions)
	c.mu.Unlock()
	endpoint := func(name string) string {
		if c.o.Bind != "" {
			return "tcp://" + net.JoinHostPort(c.o.Bind, "0")
		}
		return "ipc://" + filepath.Join(c.dir, name+n)
	}
	if in, err = c.o.Transport.Bind(Router, endpoint("in"), 0); err != nil {
		return nil, nil, err
	}
	if out, err = c.o.Transport.Bind(Pull, endpoint("out"), 0); err != nil {
		return nil, nil, errors.Join(err, in.Close())
	}
	return in, out, nil
}

// running returns the session of a live engine.
func (c *Client) running() (*session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil, ErrClosed
	case c.s == nil || !c.live:
		return nil, ErrNotRunning
	}
	if err := c.s.deadError(); err != nil {
		return nil, err
	}
	return c.s, nil
}

// awake returns the session of an engine that takes requests.
func (c *Client) awake() (*session, error) {
	s, err := c.running()
	if err == nil && c.asleep.Load() {
		err = ErrAsleep
	}
	return s, err
}

// Ready returns what the engine said of itself when it started, with what Options
// say where it did not tell; nil before, and while it is started again.
func (c *Client) Ready() *serde.Ready {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.s == nil || !c.live {
		return nil
	}
	r := *c.s.ready
	return &r
}

// Generation returns the generation of the engine, nil before it has started, and
// while it is started again.
func (c *Client) Generation() *pycompat.Generation {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.s == nil || !c.live {
		return nil
	}
	return c.s.gen
}

// Gone is closed when the engine that runs now has gone; Start may be called then.
// It is nil, which is never closed, if none runs. The error says why, once it is
// closed.
func (c *Client) Gone() (<-chan struct{}, func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.s == nil || !c.live {
		return nil, func() error { return ErrNotRunning }
	}
	return c.s.gone, c.s.deadError
}

// Kill kills the engine that this client started, with everything that it started.
// Everyone is told, and Start may be called.
func (c *Client) Kill() error {
	s, err := c.running()
	if err != nil {
		return err
	}
	if s.process == nil {
		return fmt.Errorf("%w: somebody else started the engine", ErrInvalid)
	}
	s.process.kill()
	return nil
}

// Stats returns the counts.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	st, s := c.stats, c.s
	c.mu.Unlock()
	if s != nil {
		s.mu.Lock()
		st.InFlight = len(s.inFlight)
		s.mu.Unlock()
	}
	return st
}

func (c *Client) count(f func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.stats)
}

// Close ends the client. New requests are refused; those under way may end until
// ctx does, and are aborted then. An engine that was started by the client is
// ended: asked first, killed after Options.Grace. Another one runs on, but no later
// client can reach it: an engine has one handshake. The cache is the caller's, and
// can be closed afterwards.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	second := c.closed
	c.closed = true
	c.mu.Unlock()
	if second {
		select {
		case <-c.over:
		case <-ctx.Done():
			select {
			case <-c.over:
			default:
				return ctx.Err()
			}
		}
		return c.closeErr
	}
	defer close(c.over)
	if err := c.gate.Acquire(ctx, everybody); err == nil { // else they are aborted
		c.gate.Release(everybody)
	}
	close(c.closing) // which ends a Start that waits
	c.closeErr = c.handshake.Close()
	c.starting.Lock()
	defer c.starting.Unlock()
	c.mu.Lock()
	s := c.s
	c.mu.Unlock()
	if s != nil {
		s.close()
		if s.process != nil { // it has ended, with all readers
			c.closeErr = errors.Join(c.closeErr, c.resetReaders(0))
		}
	}
	c.wait.Wait()
	c.closeErr = errors.Join(c.closeErr, c.removeDir())
	return c.closeErr
}

// requestsNow lists the streams that are live.
func (s *session) requestsNow() []*Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.inFlight))
}

// close ends a session that is not needed any more.
func (s *session) close() {
	if s.process == nil && s.deadError() == nil {
		s.quit()
	}
	s.die(ErrClosed)
	<-s.ended
}

// quit leaves an engine that runs on: nothing of ours may go on there.
func (s *session) quit() {
	s.mu.Lock()
	s.quitting = true // what comes now would come behind the fence
	s.mu.Unlock()
	for _, st := range s.requestsNow() {
		st.abort(ErrClosed)
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.c.o.Grace)
	defer cancel()
	s.passFence(ctx)
}
