package daemon

import (
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"github.com/ringcache/ringcache/daemon/internal/registry"
	"github.com/ringcache/ringcache/daemon/wire"
)

// patience is how long a client may take.
type patience struct {
	hello time.Duration // from the connection to Hello
	frame time.Duration // from the first byte of a request to the last
	reply time.Duration // to take a reply
}

var ordinaryPatience = patience{hello: 30 * time.Second, frame: 10 * time.Second, reply: 10 * time.Second}

var errEnding = errors.New("the daemon ends")

// connection is a client's connection. One goroutine serves it: it reads a request, handles it in its turn,
// writes the reply, and begins anew. It is without a session until Hello, and Hello may come again. It ends
// when the client goes, when a frame can't be trusted, after some errors (see encode), when another connection
// takes its session over, or when the server ends: then finish lets the request under way have its answer, and
// close does not.
type connection struct {
	server *Server
	conn   net.Conn

	client *registry.Client

	// Of the goroutine.
	session *session // nil before Hello
	reader  *wire.Reader
	begun   time.Time // when the server began to wait for what the client has to send; zero if it need not send anything
	limited bool      // the connection has a deadline for reads
	request wire.Request
	out     []byte
	work    work

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

// isFinishing reports whether the server ends, so that no request is handled any more.
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
			c.session.looks.end()
		}
	}()
	defer func() {
		c.work.handled()
		c.work.sent()
	}()
	c.reader = wire.NewReader(c, wire.MaxRequest)
	c.reader.Admit(smallRequest, func(n int) error {
		c.begun = time.Time{} // the time that this waits is not the client's
		if !c.work.admit(n) {
			return errEnding
		}
		return nil
	})
	for {
		body, err := c.next()
		if err != nil {
			var bad *wire.Error
			if errors.As(err, &bad) {
				out, _ := c.encode(&wire.Reply{Error: bad})
				c.send(out)
			}
			return
		}
		begin := time.Now()
		out, goesOn := c.answer(body)
		op := c.request.Op
		c.forget(len(body)) // before the client takes the reply: only that is left
		if !c.send(out) {
			goesOn = false
		}
		c.work.sent()
		s.meter.took(op, time.Since(begin))
		if !goesOn {
			return
		}
	}
}

// forget gives up what a large request took, so that an idle connection keeps little memory.
func (c *connection) forget(body int) {
	c.reader.Forget()
	if q := &c.request; body > keptRequest || cap(q.Names)+cap(q.Leases) > keptNames || cap(q.Objects) > 0 {
		*q = wire.Request{}
	}
	c.work.handled()
}

// answer answers a frame in its turn. It returns the reply, nil if there is none, and reports whether the
// connection goes on.
func (c *connection) answer(body []byte) (out []byte, goesOn bool) {
	c.work.begin(len(body))
	defer func() { c.work.end(len(out) / bytesOfTurn) }()
	q := &c.request
	if err := wire.DecodeRequest(body, q); err != nil {
		var bad *wire.Error
		if !errors.As(err, &bad) {
			bad = &wire.Error{Kind: wire.KindInvalid, Text: err.Error()}
		}
		out, goesOn = c.encode(&wire.Reply{ID: q.ID, Error: bad})
		return out, goesOn && q.ID != 0
	}
	var p *wire.Reply
	if c.work.widen(c.needs(q, len(body))) {
		span := c.server.trace(q)
		p = c.handleGuarded(q)
		traced(span, q, p)
	} else {
		p = failed(wire.KindBusy, "there is no room for so much now; ask again, for less at a time")
		p.ID = q.ID
	}
	c.count(q, p)
	return c.encode(p)
}

// needs returns how many bytes handling a request takes.
func (c *connection) needs(q *wire.Request, body int) int64 {
	n := body + bytesOfName*(len(q.Names)+len(q.Objects)+len(q.Leases))
	switch {
	case q.List:
		n += bytesOfLease*min(c.server.registry.Counts().Leases, maxListed) +
			bytesOfName*min(c.server.registry.Counts().Connected, maxClients)
	case q.Op == wire.Get && len(q.Names) == 0 && c.session != nil:
		n += bytesOfName * min(c.session.user.Objects(q.Lease), maxListed)
	}
	return int64(n)
}

// handleGuarded handles a request. A panic costs the client its connection, and nobody else anything.
func (c *connection) handleGuarded(q *wire.Request) (p *wire.Reply) {
	defer func() {
		if r := recover(); r != nil {
			c.server.panic.Warn(c.server.log, "a request caused a panic: please report this", "op", q.Op, "panic", r,
				"stack", string(debug.Stack()))
			p = &wire.Reply{
				ID: q.ID, Error: &wire.Error{
					Kind: wire.KindInternal, Text: "the daemon failed to serve the request, and has logged why",
				},
			}
		}
	}()
	if c.isFinishing() {
		return &wire.Reply{
			ID: q.ID, Error: &wire.Error{Kind: wire.KindClosing, Text: "the daemon ends; connect again in a while"},
		}
	}
	p = c.handle(q)
	p.ID = q.ID
	return p
}

// encode returns the frame of a reply, nil if there is no room for it since the server ends. It reports
// whether the connection goes on.
func (c *connection) encode(p *wire.Reply) (out []byte, goesOn bool) {
	goesOn = true
	if p.Error != nil {
		c.server.meter.refuse(p.Error.Kind)
		switch p.Error.Kind {
		case wire.KindVersion, wire.KindPermission, wire.KindClosing, wire.KindInternal:
			goesOn = false
		}
	}
	size := wire.ReplySize(p)
	if size > mostReply {
		p = tooLarge(p.ID, fmt.Sprintf("the most is %d bytes: ask for less at a time", wire.MaxReply))
		size = wire.ReplySize(p)
	}
	if !c.work.widenReply(int64(size)) {
		return nil, false
	}
	if size > cap(c.out) {
		c.out = make([]byte, 0, size)
	}
	out, err := wire.AppendReply(c.out[:0], p)
	if err != nil { // it has a text that can't be sent, say
		if out, err = wire.AppendReply(c.out[:0], tooLarge(p.ID, err.Error())); err != nil {
			return nil, false
		}
	}
	if c.out = out; cap(out) > keptReply {
		c.out = nil
	}
	return out, goesOn
}

// tooLarge is the reply in place of one that can't be sent.
func tooLarge(id uint64, why string) *wire.Reply {
	return &wire.Reply{ID: id, Error: &wire.Error{Kind: wire.KindInvalid, Text: "the answer can't be sent: " + why}}
}

// send writes a reply, and reports whether the connection goes on.
func (c *connection) send(out []byte) bool {
	if out == nil || c.conn.SetWriteDeadline(time.Now().Add(c.server.patience.reply)) != nil {
		return false
	}
	_, err := c.conn.Write(out)
	return err == nil
}
