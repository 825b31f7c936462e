package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// everybody is the weight of a barrier; a request weighs 1.
const everybody = 1 << 40

// Client is the frontend of one engine, or of one after the other.
//
// Lock order: Client.mu and handshake.mu before session.mu. Stream.mu is held alone.
type Client struct {
	o         Options
	handshake *handshake
	dir       string // of the sockets; empty if they are TCP

	// gate has one share for each request, from the start of Generate until the
	// request is settled. A barrier takes all shares.
	gate *semaphore.Weighted

	starting *semaphore.Weighted // of 1, held by Start and Close
	closing  context.Context     // done when Close has begun to end what goes on
	leave    context.CancelFunc  // of closing
	closed   chan struct{}       // closed when Close has returned closeErr
	closeErr error

	mu       sync.Mutex
	state    clientState
	s        *session // that was started last; nil while another one is awaited
	sessions uint64   // so far
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
// can connect to Address.
func New(o Options) (*Client, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{
		o: o, state: clientOpen, gate: semaphore.NewWeighted(everybody),
		starting: semaphore.NewWeighted(1), closed: make(chan struct{}),
	}
	c.closing, c.leave = context.WithCancel(context.Background())
	if o.Bind == "" {
		if c.dir, err = socketDir(o.Dir); err != nil {
			return nil, err
		}
	}
	if c.handshake, err = bindHandshake(o); err != nil {
		return nil, errors.Join(err, c.removeDir())
	}
	return c, nil
}

func (c *Client) removeDir() error {
	if c.dir == "" {
		return nil
	}
	return os.RemoveAll(c.dir)
}

// Address returns what the engine has to be started with.
func (c *Client) Address() Address {
	a := Address{Handshake: c.handshake.socket.Endpoint()}
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

// current returns the session that was started last, nil if there is none.
func (c *Client) current() *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.s
}

// live returns the session of an engine that takes calls.
func (c *Client) live() (*session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.state != clientOpen:
		return nil, errClosed
	case c.s == nil:
		return nil, ErrNotRunning
	}
	if err := c.s.deadError(); err != nil {
		return nil, err
	}
	return c.s, nil
}

// running returns the session of an engine that takes requests.
func (c *Client) running() (*session, error) {
	s, err := c.live()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s, s.takesRequests()
}

// Ready returns what the engine reported of itself when it started, completed from
// the Options; nil before the first start, and while the engine is started again.
func (c *Client) Ready() *enginecore.Ready {
	s := c.current()
	if s == nil {
		return nil
	}
	r := *s.ready
	return &r
}

// Gone returns a channel that is closed when the present engine has gone, and a
// function that returns why, once the channel is closed. Start may be called then.
// The channel is nil, which is never closed, if no engine was started.
func (c *Client) Gone() (<-chan struct{}, func() error) {
	s := c.current()
	if s == nil {
		return nil, func() error { return ErrNotRunning }
	}
	return s.ctx.Done(), s.deadError
}

// Kill kills the engine that this client started, with everything that the engine
// started. Requests and calls end with an [ErrDead], and Start may be called.
func (c *Client) Kill() error {
	s, err := c.live()
	if err != nil {
		return err
	}
	if s.process == nil {
		return fmt.Errorf("%w: somebody else started the engine", errInvalid)
	}
	s.process.kill()
	return nil
}

// Stats returns the counts.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

func (c *Client) count(f func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.stats)
}

// Close ends the client. New requests are refused; those under way may end until
// ctx does, and are aborted then. Close returns when all of them are settled, so the
// cache, which is the caller's, can be closed afterwards; a producer that goes on
// although its context has ended is waited for as long as Options.Grace, and is an
// error then.
//
// An engine that the client started is ended: asked first, killed after
// Options.Grace. Another one runs on, but no later client can reach it: an engine has
// one handshake.
//
// A second Close waits for the first one, and returns its error, or that of ctx.
func (c *Client) Close(ctx context.Context) error {
	if !c.step(clientClose) {
		select {
		case <-c.closed:
		case <-ctx.Done():
			select {
			case <-c.closed:
			default:
				return ctx.Err()
			}
		}
		return c.closeErr
	}
	c.closeErr = c.close(ctx)
	c.step(clientEnded)
	close(c.closed)
	return c.closeErr
}

func (c *Client) step(e clientEvent) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return clientTable.step(&c.state, e)
}

func (c *Client) close(ctx context.Context) error {
	_ = c.settled(ctx) // what goes on is aborted
	c.leave()          // which ends a Start that waits
	errs := []error{c.handshake.close()}
	_ = c.starting.Acquire(context.Background(), 1)
	defer c.starting.Release(1)
	if s := c.current(); s != nil {
		errs = append(errs, s.close())
	}
	return errors.Join(append(errs, c.removeDir())...)
}

// settled waits until no request is under way. New ones can come afterwards.
func (c *Client) settled(ctx context.Context) error {
	if !c.gate.TryAcquire(everybody) { // also when ctx has ended
		if err := c.gate.Acquire(ctx, everybody); err != nil {
			return err
		}
	}
	c.gate.Release(everybody)
	return nil
}
