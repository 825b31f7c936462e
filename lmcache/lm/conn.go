package lm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/ringcache/ringcache/tier"
)

// conn is a connection of a client. Its goroutine answers one request after the other, as clients expect.
type conn struct {
	server *Server
	raw    net.Conn
	store  Store
	form   Form
	known  bool               // form is that of the first request, as of all others
	header [36 + keySize]byte // of the request
	reply  [36]byte           // its header

	mu        sync.Mutex // guards what follows
	answering bool       // a request has begun to arrive, and is not answered yet
	finishing bool       // no other request is answered
}

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// finish ends the connection behind the request that is under way.
func (c *conn) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finishing = true
	if !c.answering {
		_ = c.raw.SetReadDeadline(longAgo) // a connection that is closed reads nothing anyway
	}
}

// begin begins a request, of which the first bytes are there: the others, and its reply, have a time. It
// reports false if no request is answered any more.
func (c *conn) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answering = !c.finishing
	return c.answering && c.raw.SetDeadline(time.Now().Add(c.server.o.MoveTime)) == nil
}

// finished ends a request. It reports whether the next one may come.
func (c *conn) finished() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answering = false
	return !c.finishing && c.raw.SetDeadline(time.Time{}) == nil
}

// serve answers requests until the client goes, or its request can't be answered. A client that goes between two
// requests is no error.
func (c *conn) serve() (err error) {
	c.store, err = c.server.o.Open(c.raw, func() { _ = c.raw.Close() })
	if err != nil {
		return nil //nolint:nilerr // who has refused the connection has logged why
	}
	defer c.store.Close()
	for more := true; more && err == nil; {
		more, err = c.next()
	}
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.As(err, new(*net.OpError)) {
		return nil
	}
	return err
}

// next answers a request. It reports whether there may be another one.
func (c *conn) next() (more bool, err error) {
	n, err := c.raw.Read(c.header[:recognized])
	if n == 0 || !c.begin() {
		return false, err
	}
	q, err := c.readHeader(n)
	if err == nil {
		err = c.answer(&q)
	}
	return c.finished(), err
}

// readHeader reads a header of which n bytes are there. Nothing behind it is read, so the bytes of a value are read
// straight to where they belong.
func (c *conn) readHeader(n int) (Request, error) {
	if _, err := io.ReadFull(c.raw, c.header[n:recognized]); err != nil {
		return Request{}, unexpectedEnd(err)
	}
	if !c.known {
		c.form, c.known = recognize(c.header[:recognized]), true
	}
	b := c.header[:c.form.RequestSize()]
	if _, err := io.ReadFull(c.raw, b[recognized:]); err != nil {
		return Request{}, unexpectedEnd(err)
	}
	return c.form.DecodeRequest(b)
}

// unexpectedEnd returns the error of a connection that fails, or ends, within a message.
func unexpectedEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// answer answers a request. An error ends the connection.
func (c *conn) answer(q *Request) error {
	k, err := c.form.KeyOf(q.Key)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.server.ctx, c.server.o.MoveTime)
	defer cancel()
	switch q.Command {
	case Put:
		return c.put(ctx, q)
	case Get:
		return c.get(ctx, k)
	case Exist:
		_, err := c.store.Stat(ctx, k)
		found := err == nil || c.server.from.has(ctx, c.form, k)
		return c.send(&Reply{Code: codeOf(found), Meta: nothing}, nil)
	case Health:
		return c.send(&Reply{Code: Success, Meta: nothing}, nil)
	default: // List: a client waits for an answer, which stock servers do not send
		return c.send(&Reply{Code: Fail, Meta: nothing}, nil)
	}
}

func codeOf(ok bool) Code {
	if ok {
		return Success
	}
	return Fail
}

// get sends a value from where it is in memory.
func (c *conn) get(ctx context.Context, k tier.Key) error {
	sent, err := c.sendStored(ctx, k)
	if sent {
		return err
	}
	stored := c.server.from.fetch(ctx, c.form, k, c.store, func(p Reply, value []byte) {
		sent, err = true, c.send(&p, value)
	})
	if stored {
		sent, err = c.sendStored(ctx, k)
	}
	if !sent {
		return c.send(&Reply{Code: Fail, Meta: nothing}, nil)
	}
	return err
}

// sendStored sends a value of the store. Without sent the error is why there is none.
func (c *conn) sendStored(ctx context.Context, k tier.Key) (sent bool, err error) {
	err = c.store.Get(ctx, k, func(o tier.Object, b []byte) error {
		p, ok := c.form.replyOf(o)
		if !ok {
			return tier.ErrCorrupt
		}
		sent = true
		return c.send(&p, b)
	})
	return sent, err
}

// send sends a header and a value in one write.
func (c *conn) send(p *Reply, value []byte) error {
	b, err := c.form.AppendReply(c.reply[:0], p)
	if err != nil {
		return err
	}
	if len(value) == 0 {
		_, err = c.raw.Write(b)
		return err
	}
	both := net.Buffers{b, value}
	_, err = both.WriteTo(c.raw)
	return err
}

// put receives a value. A Put has no reply, so what is not stored is received all the same, and the client goes on.
func (c *conn) put(ctx context.Context, q *Request) error {
	o, err := c.form.objectOf(q)
	if err != nil {
		return err
	}
	body := &io.LimitedReader{R: c.raw, N: o.Size}
	if o.Size > c.server.o.MaxValue {
		err = fmt.Errorf("a value has %d bytes, and %d are the most", o.Size, c.server.o.MaxValue)
	} else {
		err = c.store.Put(ctx, o, body)
	}
	if body.N == 0 && err == nil {
		return nil
	}
	if _, missing := io.Copy(io.Discard, body); missing != nil || body.N > 0 {
		return errors.Join(io.ErrUnexpectedEOF, missing)
	}
	if err != nil {
		c.server.big.Warn(c.server.o.Logger, "a value of lm:// was not stored", "error", err)
	}
	return nil
}
