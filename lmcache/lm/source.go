package lm

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ringcache/ringcache/tier"
)

const (
	// sourceClients are the connections to a source, and the most values of it that are on the heap.
	sourceClients = 4

	// sourcePause is how long a source is not asked that did not answer.
	sourcePause = 10 * time.Second
)

// source is another server, which is asked for what this one does not have: so it is drained by what is asked for.
//
// See docs/decisions.md, "An old server of lm:// is drained by what is asked for".
type source struct {
	s       *Server
	form    Form
	clients chan *Client

	mu    sync.Mutex
	pause time.Time // until then it is not asked
}

func newSource(s *Server, o ClientOptions) *source {
	if o.DialTime == 0 {
		o.DialTime = time.Second
	}
	x := &source{s: s, form: o.Form, clients: make(chan *Client, sourceClients)}
	for range sourceClients {
		x.clients <- NewClient(o)
	}
	return x
}

// close closes the connections, when nobody asks any more.
func (x *source) close() {
	for range sourceClients {
		_ = (<-x.clients).Close() // nothing was written
	}
}

// ask asks the source for something that a client of a form asks for. It reports whether there was an answer; a miss is
// one.
func (x *source) ask(ctx context.Context, f Form, do func(*Client) error) bool {
	if x == nil || (f == Untyped) != (x.form == Untyped) {
		return false
	}
	if x.pausing() {
		return false
	}
	var c *Client
	select {
	case c = <-x.clients:
	case <-ctx.Done():
		return false
	}
	defer func() { x.clients <- c }()
	if x.pausing() { // others have waited in vain meanwhile
		return false
	}
	err := do(c)
	if err == nil || errors.Is(err, ErrMiss) {
		return true
	}
	if !errors.Is(err, tier.ErrTooLarge) {
		x.mu.Lock()
		x.pause = time.Now().Add(sourcePause)
		x.mu.Unlock()
	}
	x.s.odd.Warn(x.s.o.Logger, "the other server of lm:// was asked in vain", "address", c.o.Address, "error", err)
	return false
}

func (x *source) pausing() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return time.Now().Before(x.pause)
}

// has reports whether the source has a value.
func (x *source) has(ctx context.Context, f Form, k tier.Key) (found bool) {
	x.ask(ctx, f, func(c *Client) (err error) {
		found, err = c.Exists(ctx, k.Name)
		return err
	})
	return found
}

// fetch gets a value of the source, and stores it; stored says that it is there now. Without room for it, it is sent by
// send. The value is on the heap no longer than a connection to the source is taken, however slow clients are.
func (x *source) fetch(ctx context.Context, f Form, k tier.Key, to Store, send func(Reply, []byte)) (stored bool) {
	x.ask(ctx, f, func(c *Client) error {
		p, value, err := c.Get(ctx, k.Name, nil)
		if err != nil {
			return err
		}
		q := Request{Key: k.Name, Length: p.Length, Meta: p.Meta}
		o, err := f.objectOf(&q)
		if err == nil {
			err = to.Put(ctx, o, bytes.NewReader(value))
		}
		if err != nil {
			x.s.big.Warn(x.s.o.Logger, "a value of another server of lm:// was not stored", "error", err)
			send(p, value)
		}
		stored = err == nil
		return nil
	})
	return stored
}
