package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/encoder"
	"github.com/ringcache/ringcache/internal/sentinel"
)

// defaultSocket is where the daemon listens unless it is told otherwise.
const defaultSocket = "/run/ringcache/ringcache.sock"

const keptRoom = 128 << 10 // bytes of a request's buffer that a Client keeps between calls

var (
	// ErrSegment reports that the daemon has another segment than the one that the client has mapped. All
	// offsets and leases of before are void. Each call fails with it until Map has mapped the new one.
	ErrSegment = errors.New("daemon: it has another segment now, and what leases had is gone; map it anew")
	// ErrClosed reports that the client was closed. It is an fs.ErrClosed.
	ErrClosed = sentinel.New(sentinel.Closed, "daemon: the client is closed")
)

// Options say which daemon is meant, and who asks.
type Options struct {
	Socket string // path of the daemon's socket; /run/ringcache/ringcache.sock if empty
	// Session is what the daemon knows the client by, see package wire; a random one if empty. Whoever has
	// it may, from the same process, take up leases where another Client has left them.
	Session string
	Name    string // of the client, for people: "ringcache warm". It must not be empty
	// Fingerprint, if not nil, makes the daemon tell the space of the client's keys; requests without a
	// Space have this one then.
	Fingerprint *encoder.Fingerprint
	Dir         string // of shared memory, for Map; /dev/shm if empty
}

// Client is a session with the daemon. When its connection is lost, the next call connects again, and takes
// the session up. A call that loses it is made once more: the protocol answers a request that was served
// before as then, but for an Abort, whose items are ended. A daemon that is not there is an error of the
// call; nothing is tried in the background.
//
// Any goroutine may call; calls follow one another. A context that ends while an answer is awaited ends the
// call, not what the daemon does for it: a lease then has what it would have had.
type Client struct {
	o        Options
	features []string      // of the protocol, see docs/daemon.md: what this client offers; none yet
	calls    chan struct{} // a lock that can be waited for with a context; it guards what follows, up to mu

	conn   net.Conn // nil when there is none
	reader *wire.Reader
	out    []byte
	id     uint64
	reply  wire.Reply // of Hello

	mu     sync.Mutex // of what follows; never held during input and output
	closed bool
	live   net.Conn      // conn, for Close
	hello  wire.Reply    // the newest answer to Hello
	mapped *wire.Segment // what Map has mapped last
}

// Dial connects to a daemon and says Hello. The error is a *[wire.Error] if the daemon refuses, else that
// of the socket, or of the context.
func Dial(ctx context.Context, o Options) (*Client, error) {
	if o.Socket == "" {
		o.Socket = defaultSocket
	}
	if o.Session == "" {
		o.Session = rand.Text()
	}
	if o.Fingerprint != nil {
		f := *o.Fingerprint
		o.Fingerprint = &f
	}
	return begin(ctx, &Client{o: o, calls: make(chan struct{}, 1)})
}

// begin connects a new client.
func begin(ctx context.Context, c *Client) (*Client, error) {
	if err := c.lock(ctx); err != nil {
		return nil, err
	}
	defer c.unlock()
	if err := c.connect(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// Close ends the connection, and a call that waits on it. The session stays until the process ends: Release
// what is not needed before. Closing twice is fine.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	if c.live == nil {
		return nil
	}
	return c.live.Close()
}

// Session returns the client's session.
func (c *Client) Session() string { return c.o.Session }

// Hello returns the daemon's newest answer to Hello: Server, Segment, Space, Limits, and the Features that
// both sides have. It must not be changed.
func (c *Client) Hello() wire.Reply {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hello
}

// connect makes a connection and says Hello. The caller has the lock.
func (c *Client) connect(ctx context.Context) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", c.o.Socket)
	if err != nil {
		return fmt.Errorf("daemon: %w; does it run, and is this its socket?", err)
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return errors.Join(ErrClosed, conn.Close())
	}
	c.live = conn
	c.mu.Unlock()
	c.conn, c.reader = conn, wire.NewReader(conn, wire.MaxReply)
	q := wire.Request{
		Op: wire.Hello, Version: wire.Version, Session: c.o.Session, Client: c.o.Name, Fingerprint: c.o.Fingerprint,
		Features: c.features,
	}
	if err := c.exchange(ctx, &q, &c.reply); err != nil {
		var broken *lost
		if errors.As(err, &broken) {
			err = broken.err // the request that the connection is for has not been sent
		}
		return errors.Join(err, c.hangUp())
	}
	p := c.reply
	switch {
	case p.Version != wire.Version:
		err := fmt.Errorf("daemon: it answers in version %d of the protocol, and this client speaks version %d: upgrade the older one",
			p.Version, wire.Version)
		return errors.Join(err, c.hangUp())
	case p.Segment == nil || p.Limits == nil:
		return errors.Join(errors.New("daemon: its answer to hello has no segment or no limits"), c.hangUp())
	}
	p.Items, p.Error = nil, nil
	p.Features = slices.DeleteFunc(p.Features, func(f string) bool { return !slices.Contains(c.features, f) })
	c.reply = wire.Reply{}
	c.mu.Lock()
	c.hello = p
	c.mu.Unlock()
	return nil
}

// hangUp gives the connection up. The caller has the lock.
func (c *Client) hangUp() error {
	if c.conn == nil {
		return nil
	}
	err := c.conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn, c.reader, c.live = nil, nil, nil
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// lock waits for other calls of the client.
func (c *Client) lock(ctx context.Context) error {
	select {
	case c.calls <- struct{}{}:
		return nil
	default:
	}
	select {
	case c.calls <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("daemon: waiting for another call of the client: %w", context.Cause(ctx))
	}
}

func (c *Client) unlock() { <-c.calls }

// stale reports whether the daemon has another segment than was mapped.
func (c *Client) stale() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mapped != nil && *c.mapped != *c.hello.Segment
}
