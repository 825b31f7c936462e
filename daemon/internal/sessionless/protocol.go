package sessionless

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ringcache/ringcache/daemon/internal/fair"
	"github.com/ringcache/ringcache/daemon/internal/process"
	"github.com/ringcache/ringcache/daemon/internal/registry"
	"github.com/ringcache/ringcache/internal/loglimit"
	"github.com/ringcache/ringcache/internal/values"
	"github.com/ringcache/ringcache/tier"
)

// Options describe a Protocol. All fields but Logger are needed.
type Options struct {
	Name     string // in the registry, and in front of the IDs of leases
	Space    string // of the values, for people
	Registry *registry.Registry
	Rooms    *fair.Rooms
	Store    *tier.Store  // of the registry
	Logger   *slog.Logger // nil is silent
}

// Protocol is a protocol of the daemon. Its methods may be called from any goroutine.
type Protocol struct {
	o       Options
	refused loglimit.Limit
	counts  struct{ open, accepted, refused, hits, misses, stored, dropped atomic.Int64 }
}

// New returns a Protocol.
func New(o Options) *Protocol {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Protocol{o: o}
}

// Counts are what a Protocol has now, and what it did since its start.
type Counts struct {
	Connections       int64 // now
	Accepted, Refused int64 // connections
	Hits, Misses      int64 // values that were asked for, with their bytes
	Stored, Dropped   int64 // values that were put, and that had no room or were not complete
}

// Counts returns what the protocol has done.
func (p *Protocol) Counts() Counts {
	n := &p.counts
	return Counts{
		Connections: n.open.Load(), Accepted: n.accepted.Load(), Refused: n.refused.Load(),
		Hits: n.hits.Load(), Misses: n.misses.Load(), Stored: n.stored.Load(), Dropped: n.dropped.Load(),
	}
}

// LeaseTime is how long a value stays pinned that a connection moves. The server ends a connection that moves
// no value in less.
const LeaseTime = 5 * time.Minute

// lease is the name of the lease of a session.
const lease = "value"

// Conn is a connection. One goroutine at a time may use it.
type Conn struct {
	*values.Values
	protocol *Protocol
	client   *registry.Client
	session  *registry.Session
	wake     chan struct{}
}

// Enter makes a connection one of the daemon's. It needs a Close. end is called when the process of the connection
// has ended, and must not wait. The errors are those of the registry, and are logged.
func (p *Protocol) Enter(raw net.Conn, end func()) (*Conn, error) {
	p.counts.accepted.Add(1)
	c, err := p.enter(raw, end)
	if err != nil {
		p.counts.refused.Add(1)
		p.refused.Warn(p.o.Logger, "a connection was refused", "protocol", p.o.Name, "error", err)
		return nil, err
	}
	p.counts.open.Add(1)
	return c, nil
}

func (p *Protocol) enter(raw net.Conn, end func()) (*Conn, error) {
	all := p.o.Registry
	var client *registry.Client
	var err error
	if raw.RemoteAddr().Network() == "unix" {
		client, err = all.Identify(raw)
	} else {
		client, err = all.Enter(process.Unknown())
	}
	if err != nil {
		return nil, err
	}
	return p.join(client, end)
}

// join opens a session of a client, which leaves if there is none.
func (p *Protocol) join(client *registry.Client, end func()) (*Conn, error) {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it never fails
	id := hex.EncodeToString(b)
	session, err := p.o.Registry.Join(client, p.o.Name, id, p.o.Name, end)
	if err != nil {
		client.Leave()
		return nil, err
	}
	c := &Conn{protocol: p, client: client, session: session, wake: make(chan struct{}, 1)}
	c.Values = values.New(values.Options{Store: p.o.Store, Holder: (*holder)(c), ID: p.o.Name + " " + id})
	return c, nil
}

// Close ends an Enter, with all that the connection pins and reserves. The connection stays open.
func (c *Conn) Close() {
	c.leave()
	c.protocol.counts.open.Add(-1)
}

// leave ends the session.
func (c *Conn) leave() {
	for rest := []string{lease}; len(rest) > 0; {
		var err error
		if rest, err = c.session.Release(rest); err != nil {
			break // the session has ended
		}
	}
	c.session.Leave()
	c.client.Leave()
}

// Get is Values.Get, and counts.
func (c *Conn) Get(ctx context.Context, k tier.Key, use func(o tier.Object, b []byte) error) error {
	p, err := c.Pin(ctx, k)
	if err != nil {
		c.protocol.counts.misses.Add(1)
		c.session.Count(c.protocol.o.Space, registry.Use{Misses: 1}, false)
		return err
	}
	defer c.Unpin(k)
	c.protocol.counts.hits.Add(1)
	c.session.Count(c.protocol.o.Space, registry.Use{Hits: 1}, false)
	return c.Use(p, use)
}

// Put is Values.Put, and counts.
func (c *Conn) Put(ctx context.Context, o tier.Object, body io.Reader) error {
	err := c.Values.Put(ctx, o, body)
	if err != nil {
		c.protocol.counts.dropped.Add(1)
		c.session.Count(c.protocol.o.Space, registry.Use{}, false)
		return err
	}
	c.protocol.counts.stored.Add(1)
	c.session.Count(c.protocol.o.Space, registry.Use{Stored: 1}, false)
	return nil
}

// holder is a Conn as its Values see it: each call is a request of the session, in a turn of the process.
type holder Conn

var _ values.Holder = (*holder)(nil)

// turn does something in a turn.
func (h *holder) turn(do func()) {
	turns, queue := h.protocol.o.Rooms.Turns, &h.client.Part.Turns
	turns.Acquire(queue, h.wake)
	defer turns.Release(queue, 1)
	do()
}

func (h *holder) placed(n int, do func() ([]tier.Placed, error)) (out []tier.Placed) {
	h.turn(func() {
		var err error
		if out, err = do(); err != nil {
			out = slices.Repeat([]tier.Placed{{Err: err}}, n)
		}
	})
	return out
}

// Pin implements values.Holder.
func (h *holder) Pin(keys []tier.Key) []tier.Placed {
	return h.placed(len(keys), func() ([]tier.Placed, error) { return h.session.Pin(lease, keys, LeaseTime, false) })
}

// Unpin implements values.Holder.
func (h *holder) Unpin(keys []tier.Key) {
	h.turn(func() { _ = h.session.Unpin(lease, keys) }) // after the end of the session nothing is pinned
}

// Reserve implements values.Holder.
func (h *holder) Reserve(objects []tier.Object) []tier.Placed {
	return h.placed(len(objects), func() ([]tier.Placed, error) { return h.session.Reserve(lease, objects, LeaseTime) })
}

// Commit implements values.Holder. Nothing stays pinned.
func (h *holder) Commit(keys []tier.Key) (errs []error) {
	h.turn(func() {
		var err error
		if errs, _, err = h.session.Commit(lease, keys, false, 0); err != nil {
			errs = slices.Repeat([]error{err}, len(keys))
		}
	})
	return errs
}

// Abort implements values.Holder.
func (h *holder) Abort(keys []tier.Key) (errs []error) {
	h.turn(func() {
		var err error
		if errs, err = h.session.Abort(lease, keys); err != nil {
			errs = slices.Repeat([]error{err}, len(keys))
		}
	})
	return errs
}

// While implements values.Holder.
func (h *holder) While(do func()) error { return h.session.While(do) }
