package lm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/ringcache/ringcache/tier"
)

// ErrMiss reports that a server does not have a value. It is a tier.ErrNotFound.
var ErrMiss = fmt.Errorf("lm: no such value: %w", tier.ErrNotFound)

// ClientOptions describe a Client. Address is needed.
type ClientOptions struct {
	Address string // HOST:PORT, or unix:///PATH
	Form    Form   // of the server's headers, which a client can't find out
	// MaxValue is the most bytes of a value that is received; 0 is 1 GiB.
	MaxValue int64
	// DialTime is the most time of connecting; 0 is ten seconds.
	DialTime time.Duration
}

// Client asks a server of lm://. It has one connection, which is made when it is needed, and again after a failure. Its
// methods may be called from any goroutine, and are done one after the other. When their context ends, the
// connection is closed, since an answer may be on its way.
type Client struct {
	o ClientOptions

	mu     sync.Mutex // a request has it
	raw    net.Conn   // nil if there is none
	read   *bufio.Reader
	buffer []byte // of a header
	closed bool
}

// NewClient returns a Client. It does not connect yet.
func NewClient(o ClientOptions) *Client {
	if o.MaxValue == 0 {
		o.MaxValue = 1 << 30
	}
	if o.DialTime == 0 {
		o.DialTime = 10 * time.Second
	}
	return &Client{o: o}
}

// Close closes the connection. Other calls fail afterwards.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return c.hangUp()
}

// hangUp closes the connection. The caller has the lock.
func (c *Client) hangUp() error {
	raw := c.raw
	c.raw, c.read = nil, nil
	if raw == nil {
		return nil
	}
	return raw.Close()
}

// Health asks whether the server is there. Untyped servers do not know that question.
func (c *Client) Health(ctx context.Context) error {
	return c.ask(ctx, &Request{Command: Health, Key: healthKey, Meta: nothing}, nil, func(p Reply, _ io.Reader) error {
		return c.expect(p, nothing)
	})
}

// healthKey is a key that servers can read, as they do before they answer.
const healthKey = "health@1@0@0@half"

// expect checks a reply without a value.
func (c *Client) expect(p Reply, meta Meta) error {
	if c.o.Form == Untyped {
		meta = Meta{}
	}
	if p.Code != Success || p.Length != 0 || p.Meta != meta {
		return fmt.Errorf("lm: the server at %s answered %+v", c.o.Address, p)
	}
	return nil
}

// Exists reports whether the server has a value.
func (c *Client) Exists(ctx context.Context, key string) (found bool, err error) {
	err = c.ask(ctx, &Request{Command: Exist, Key: key, Meta: nothing}, nil, func(p Reply, _ io.Reader) error {
		if found = p.Code == Success; p.Length != 0 {
			return fmt.Errorf("lm: the server at %s answered a question by %d bytes", c.o.Address, p.Length)
		}
		return nil
	})
	return found && err == nil, err
}

// Get gets a value. The bytes are read into what into returns for it, which has Reply.Length bytes; without into,
// into memory of their own. The error is ErrMiss if the server does not have it. An error of into closes the
// connection.
func (c *Client) Get(ctx context.Context, key string, into func(Reply) ([]byte, error)) (p Reply, b []byte, err error) {
	err = c.ask(ctx, &Request{Command: Get, Key: key, Meta: nothing}, nil, func(reply Reply, body io.Reader) error {
		switch {
		case reply.Code != Success && reply.Length == 0:
			return ErrMiss
		case reply.Code != Success: // bytes may follow, or not: the connection can't go on
			return fmt.Errorf("lm: the server at %s answered %+v", c.o.Address, reply)
		case int64(reply.Length) > c.o.MaxValue:
			return fmt.Errorf("lm: a value has %d bytes, and %d are the most: %w",
				reply.Length, c.o.MaxValue, tier.ErrTooLarge)
		}
		var err error
		if into == nil {
			b = make([]byte, reply.Length)
		} else if b, err = into(reply); err == nil && len(b) != int(reply.Length) {
			err = io.ErrShortBuffer
		}
		if err != nil {
			return err
		}
		p = reply
		_, err = io.ReadFull(body, b)
		return unexpectedEnd(err)
	})
	if err != nil {
		return Reply{}, nil, err
	}
	return p, b, nil
}

// Put stores a value. Servers do not answer: the error is nil if the value was sent.
func (c *Client) Put(ctx context.Context, key string, m Meta, value []byte) error {
	if int64(len(value)) > maxLength {
		return invalid("a value has %d bytes, and %d are the most", len(value), maxLength)
	}
	return c.ask(ctx, &Request{Command: Put, Key: key, Length: int32(len(value)), Meta: m}, value, nil)
}

// maxLength is the most that a length can be.
const maxLength = 1<<31 - 1

// ask sends a request, and reads its reply by answer, if it has one.
func (c *Client) ask(ctx context.Context, q *Request, value []byte, answer func(p Reply, body io.Reader) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, err := c.o.Form.AppendRequest(c.buffer[:0], q)
	if err != nil {
		return err
	}
	c.buffer = b
	if err := c.connect(ctx); err != nil {
		return err
	}
	raw := c.raw
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(longAgo) }) // its calls return
	err = c.exchange(b, value, answer)
	if !stop() && err != nil { // the context has ended
		err = errors.Join(context.Cause(ctx), err)
	}
	if errors.Is(err, ErrMiss) && ctx.Err() == nil {
		return err
	}
	if err != nil || ctx.Err() != nil {
		return errors.Join(err, c.hangUp())
	}
	return nil
}

// exchange sends a request in one write, and reads its reply.
func (c *Client) exchange(header, value []byte, answer func(p Reply, body io.Reader) error) error {
	var err error
	if len(value) == 0 {
		_, err = c.raw.Write(header)
	} else {
		both := net.Buffers{header, value}
		_, err = both.WriteTo(c.raw)
	}
	if err != nil || answer == nil {
		return err
	}
	var b [36]byte
	head := b[:c.o.Form.ReplySize()]
	if _, err := io.ReadFull(c.read, head); err != nil {
		return unexpectedEnd(err)
	}
	p, err := c.o.Form.DecodeReply(head)
	if err != nil {
		return err
	}
	return answer(p, c.read)
}

// connect connects, unless there is a connection.
func (c *Client) connect(ctx context.Context) error {
	if c.closed {
		return fmt.Errorf("lm: the client of %s: %w", c.o.Address, net.ErrClosed)
	}
	if c.raw != nil {
		return nil
	}
	d, network := net.Dialer{Timeout: c.o.DialTime}, "tcp"
	address, unix := strings.CutPrefix(c.o.Address, "unix://")
	if unix {
		network = "unix"
	}
	raw, err := d.DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	c.raw, c.read = raw, bufio.NewReaderSize(raw, 64)
	return nil
}
