package daemon

import (
	"errors"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"github.com/ringcache/ringcache/daemon/internal/promise"
	"github.com/ringcache/ringcache/encoder/wire"
)

const keptRoom = 128 << 10 // bytes of requests, and of replies, that a connection keeps memory for

// patience is how long a client may take.
type patience struct {
	hello time.Duration // from the connection to Hello
	frame time.Duration // from the first byte of a request to the last
	reply time.Duration // to take a reply
}

var ordinaryPatience = patience{hello: 30 * time.Second, frame: 10 * time.Second, reply: 10 * time.Second}

// connection is a client's connection. One goroutine serves it.
type connection struct {
	server *Server
	conn   net.Conn

	client *promise.Client

	// Of the goroutine.
	session *session // nil before Hello
	reader  *wire.Reader
	begun   time.Time // when the server began to wait for what the client has to send; zero if it need not send anything
	limited bool      // the connection has a deadline for reads
	out     []byte

	mu        sync.Mutex // guards what follows, and deadlines of the connection
	finishing bool
}

// finish ends the connection after the request that is under way, if any.
func (c *connection) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finishing = true
	_ = c.conn.SetReadDeadline(time.Unix(1, 0)) // else it is closed already
}

// close ends the connection at once, whatever is under way.
func (c *connection) close() { _ = c.conn.Close() } // nothing is written any more

func (c *connection) isFinishing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.finishing
}

// waitUntil sets until when the next bytes have to be there; zero is for ever.
func (c *connection) waitUntil(at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.finishing {
		at = time.Unix(1, 0)
	}
	return c.conn.SetReadDeadline(at)
}

// Read reads from the connection. An idle client may be silent as long as it likes: one in the middle of a request,
// or before Hello, may not.
func (c *connection) Read(b []byte) (int, error) {
	limit := time.Duration(0)
	switch {
	case c.reader.Partial():
		limit = c.server.patience.frame
	case c.session == nil:
		limit = c.server.patience.hello
	}
	switch {
	case limit == 0 && c.limited:
		c.limited = false
		if err := c.waitUntil(time.Time{}); err != nil {
			return 0, err
		}
	case limit > 0 && c.begun.IsZero():
		c.begun, c.limited = time.Now(), true
		if err := c.waitUntil(c.begun.Add(limit)); err != nil {
			return 0, err
		}
	}
	return c.conn.Read(b)
}

// next returns the next frame. Each has a time of its own, also where a read ended in the middle of it.
func (c *connection) next() ([]byte, error) {
	body, err := c.reader.Next()
	c.begun = time.Time{}
	return body, err
}

// serve answers requests until the end of the connection.
func (c *connection) serve() {
	s := c.server
	defer func() {
		c.close()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, c)
	}()
	defer c.client.Leave()
	defer func() {
		if c.session != nil {
			c.session.user.Leave()
		}
	}()
	c.reader = wire.NewReader(c, wire.MaxRequest)
	var q wire.Request
	for {
		body, err := c.next()
		if err != nil {
			var bad *wire.Error
			if errors.As(err, &bad) {
				c.reply(&wire.Reply{Error: bad})
			}
			return
		}
		begin := time.Now()
		goesOn := c.answer(body, &q)
		s.meter.took(q.Op, time.Since(begin))
		if !goesOn {
			return
		}
		if len(body) > keptRoom {
			q = wire.Request{}
		}
	}
}

// answer answers a frame, and reports whether the connection goes on.
func (c *connection) answer(body []byte, q *wire.Request) bool {
	if err := wire.DecodeRequest(body, q); err != nil {
		var bad *wire.Error
		if !errors.As(err, &bad) {
			bad = &wire.Error{Kind: wire.KindInvalid, Text: err.Error()}
		}
		return c.reply(&wire.Reply{ID: q.ID, Error: bad}) && q.ID != 0
	}
	p := c.handleGuarded(q)
	if p.Error == nil {
		c.server.meter.items(q.Op, p.Items)
	}
	return c.reply(p)
}

// handleGuarded handles a request. A panic costs the client its connection, and nobody else anything.
func (c *connection) handleGuarded(q *wire.Request) (p *wire.Reply) {
	defer func() {
		if r := recover(); r != nil {
			c.server.panic.Warn(c.server.log, "a request caused a panic: please report this", "op", q.Op, "panic", r, "stack", string(debug.Stack()))
			p = &wire.Reply{ID: q.ID, Error: &wire.Error{Kind: wire.KindInternal, Text: "the daemon failed to serve the request, and has logged why"}}
		}
	}()
	if c.isFinishing() {
		return &wire.Reply{ID: q.ID, Error: &wire.Error{Kind: wire.KindClosing, Text: "the daemon ends; connect again in a while"}}
	}
	p = c.handle(q)
	p.ID = q.ID
	return p
}

// reply writes a reply, and reports whether the connection goes on.
func (c *connection) reply(p *wire.Reply) bool {
	goesOn := true
	if p.Error != nil {
		c.server.meter.refuse(p.Error.Kind)
		switch p.Error.Kind {
		case wire.KindVersion, wire.KindPermission, wire.KindClosing, wire.KindInternal:
			goesOn = false
		}
	}
	out, err := wire.AppendReply(c.out[:0], p)
	if err != nil { // it is too large, say
		p = &wire.Reply{ID: p.ID, Error: &wire.Error{Kind: wire.KindInvalid, Text: "the answer can't be sent: " + err.Error()}}
		if out, err = wire.AppendReply(c.out[:0], p); err != nil {
			return false
		}
	}
	if c.out = out; cap(out) > keptRoom {
		c.out = nil
	}
	if err := c.conn.SetWriteDeadline(time.Now().Add(c.server.patience.reply)); err != nil {
		return false
	}
	_, err = c.conn.Write(out)
	return err == nil && goesOn
}
