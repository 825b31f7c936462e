package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/ringcache/ringcache/daemon/wire"
)

// Do sends a request and reads the reply into p, as [wire.DecodeReply]. It sets the request's ID, and its
// Space if that is empty, needed, and known from Hello. The methods named like an Op are easier. The error
// is a *[wire.Error] if the request is wrong, or refused by the daemon; [ErrSegment], [ErrClosed]; that of
// the context, or of the socket.
func (c *Client) Do(ctx context.Context, q *wire.Request, p *wire.Reply) error {
	if err := c.lock(ctx); err != nil {
		return err
	}
	defer c.unlock()
	if q.Op == wire.Hello {
		return &wire.Error{Kind: wire.KindInvalid, Text: "request: op: a client says hello by itself"}
	}
	for try := 0; ; try++ {
		err := c.attempt(ctx, q, p)
		var broken *lost
		if !errors.As(err, &broken) {
			return err
		}
		if err := c.hangUp(); err != nil {
			return err
		}
		if try > 0 {
			return broken.err
		}
	}
}

// attempt makes a call once, on a new connection if there is none.
func (c *Client) attempt(ctx context.Context, q *wire.Request, p *wire.Reply) error {
	if err := c.ready(ctx); err != nil {
		return err
	}
	if c.stale() {
		return ErrSegment
	}
	if q.Space == "" && (q.Lease != "" || len(q.Names) > 0) { // what has one of these is about a space
		q.Space = c.Hello().Space
	}
	return c.exchange(ctx, q, p)
}

// ready sees to it that there is a connection, which may have been lost without anybody noticing. The
// caller has the lock.
func (c *Client) ready(ctx context.Context) error {
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	switch {
	case closed:
		return errors.Join(ErrClosed, c.hangUp())
	case c.conn != nil:
		return nil
	}
	return c.connect(ctx)
}

// lost is an error of the connection.
type lost struct{ err error }

func (l *lost) Error() string { return l.err.Error() }
func (l *lost) Unwrap() error { return l.err }

// exchange sends a request on the connection and reads the reply. It hangs up when the connection is of no
// use any more, but for an error of type *lost.
func (c *Client) exchange(ctx context.Context, q *wire.Request, p *wire.Reply) error {
	c.id++
	q.ID = c.id
	if err := q.Validate(); err != nil {
		return err
	}
	out, err := wire.AppendRequest(c.out[:0], q)
	if err != nil {
		return err
	}
	if c.out = out; cap(out) > keptRoom {
		c.out = nil
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("daemon: %s: %w", q.Op, context.Cause(ctx))
	}
	restore, err := c.watch(ctx)
	if err != nil {
		return &lost{err}
	}
	defer restore()
	if n, err := c.conn.Write(out); err != nil {
		err = c.failed(ctx, q, err)
		if n > 0 {
			err = errors.Join(err, c.hangUp()) // the next request would be the rest of this one
		}
		return err
	}
	for {
		body, err := c.reader.Next()
		if err != nil {
			return c.failed(ctx, q, err)
		}
		if err := wire.DecodeReply(body, p); err != nil {
			return errors.Join(fmt.Errorf("daemon: %s: it sent what is no reply: %w", q.Op, err), c.hangUp())
		}
		switch {
		case p.ID == 0:
			return errors.Join(p.Error, c.hangUp())
		case p.ID < q.ID:
			continue // of a call that has ended
		case p.ID > q.ID:
			return errors.Join(fmt.Errorf("daemon: a reply to request %d, and the last one was %d", p.ID, q.ID),
				c.hangUp())
		case p.Error != nil && goesOn(p.Error.Kind):
			return p.Error
		case p.Error != nil:
			return errors.Join(p.Error, c.hangUp()) // the daemon does so, too, or has another connection of the session
		}
		return checkItems(q, p)
	}
}

// goesOn reports whether the connection does after a refusal.
func goesOn(k wire.Kind) bool {
	return k == wire.KindInvalid || k == wire.KindUnsupported || k == wire.KindBusy
}

// checkItems compares the number of items with what was asked.
func checkItems(q *wire.Request, p *wire.Reply) error {
	want, got := len(q.Names)+len(q.Objects), len(p.Items)
	switch {
	case got == want, q.Op == wire.Release, q.Op == wire.Get && want == 0:
		return nil
	case q.Op == wire.Pin && q.Prefix && got > 0 && got < want:
		return nil
	}
	return fmt.Errorf("daemon: %d items for %d names of %s", got, want, q.Op)
}

// failed explains an error of the connection: the end of the context, or its loss.
func (c *Client) failed(ctx context.Context, q *wire.Request, err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if ended := ctx.Err(); ended != nil {
			return fmt.Errorf("daemon: %s: no answer: %w", q.Op, context.Cause(ctx))
		}
		return fmt.Errorf("daemon: %s: no answer: %w", q.Op, context.DeadlineExceeded)
	}
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return errors.Join(ErrClosed, c.hangUp())
	}
	var bad *wire.Error
	if errors.As(err, &bad) {
		return errors.Join(fmt.Errorf("daemon: %s: it sent what is no reply: %w", q.Op, err), c.hangUp())
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the daemon has closed the connection")
	}
	return &lost{fmt.Errorf("daemon: %s: %w", q.Op, err)}
}

// watch makes the connection's calls end with the context; restore must be called afterwards.
func (c *Client) watch(ctx context.Context) (restore func(), err error) {
	deadline, _ := ctx.Deadline() // zero is never
	if err := c.conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	if ctx.Done() == nil {
		return func() {}, nil
	}
	conn, done := c.conn, make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = conn.SetDeadline(time.Unix(1, 0)) // else it is closed already
		close(done)
	})
	return func() {
		if !stop() {
			<-done
		}
	}, nil
}
