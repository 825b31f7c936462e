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
	// sourceClients are the connections to a source, and so the most values of it that are on the heap.
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
	x.mu.Lock()
	pausing := time.Now().Before(x.pause)
	x.mu.Unlock()
	if pausing {
		return false
	}
	var c *Client
	select {
	case c = <-x.clients:
	case <-ctx.Done():
		return false
	}
	defer func() { x.clients <- c }()
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

// has reports whether the source has a value.
func (x *source) has(ctx context.Context, f Form, k tier.Key) (found bool) {
	x.ask(ctx, f, func(c *Client) (err error) {
		found, err = c.Exists(ctx, k.Name)
		return err
	})
	return found
}

// fetch gets a value of the source, and stores it. Without room for it, it is only returned.
func (x *source) fetch(ctx context.Context, f Form, k tier.Key, to Store) (p Reply, value []byte, found bool) {
	x.ask(ctx, f, func(c *Client) (err error) {
		if p, value, err = c.Get(ctx, k.Name, nil); err != nil {
			return err
		}
		found = true
		q := Request{Key: k.Name, Length: p.Length, Meta: p.Meta}
		o, err := f.objectOf(&q)
		if err == nil {
			err = to.Put(ctx, o, bytes.NewReader(value))
		}
		if err != nil {
			x.s.big.Warn(x.s.o.Logger, "a value of another server of lm:// was not stored", "error", err)
		}
		return nil
	})
	return p, value, found
}
