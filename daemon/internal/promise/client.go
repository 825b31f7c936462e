package promise

import (
	"fmt"

	"github.com/ringcache/ringcache/daemon/internal/process"
	"github.com/ringcache/ringcache/internal/failpoint"
)

// Client is a process, with all its sessions. Its fields are guarded by the lock of the book.
type Client struct {
	book     *Book
	process  *process.Process
	entered  int // connections
	dead     bool
	gone     bool // it is not in the book any more
	sessions map[*session]struct{}
	leases   int
	items    int64
	held     int64 // bytes
	wishes   wishes
}

// Enter returns the client of a process, which the book takes over: it closes p. Each Enter needs a Leave. A client is one
// process, so that what it may have does not grow with its connections. allowed is the most connections of one process.
func (b *Book) Enter(p *process.Process, allowed int) (*Client, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		p.Close()
		return nil, ErrClosed
	}
	c := b.clientOf(p)
	if c.entered >= allowed {
		b.dismiss(c)
		return nil, fmt.Errorf("%w: process %d has %d connections, which is the most; close some", ErrLimit, p.ID().PID, c.entered)
	}
	c.entered++
	return c, nil
}

// clientOf returns the client of a process, or a new one.
func (b *Book) clientOf(p *process.Process) *Client {
	for c := range b.clients {
		if !c.dead && c.process.Compare(p) == process.Same {
			p.Close()
			return c
		}
	}
	c := &Client{book: b, process: p, sessions: map[*session]struct{}{}}
	b.clients[c] = struct{}{}
	b.background.Go(func() {
		if p.Wait() {
			b.died(c)
		}
	})
	return c
}

// Leave ends an Enter.
func (c *Client) Leave() {
	c.book.mu.Lock()
	defer c.book.mu.Unlock()
	c.entered--
	c.book.dismiss(c)
}

// PID returns the number of the process, 0 if it is unknown.
func (c *Client) PID() int { return c.process.ID().PID }

// dismiss forgets a client of which there is nothing left.
func (b *Book) dismiss(c *Client) {
	if c.entered > 0 || len(c.sessions) > 0 || c.gone {
		return
	}
	c.gone = true
	delete(b.clients, c)
	c.process.Close()
}

// died ends all sessions of a process.
func (b *Book) died(c *Client) {
	b.mu.Lock()
	c.dead = true
	sessions := make([]*session, 0, len(c.sessions))
	for s := range c.sessions {
		sessions = append(sessions, s)
	}
	b.mu.Unlock()
	ended := 0
	for _, s := range sessions {
		s.mu.Lock()
		if s.client == c && !s.closed {
			ended += s.end()
			failpoint.Hit("daemon.died")
		}
		s.mu.Unlock()
	}
	b.mu.Lock()
	b.counts.EndedByExit += uint64(ended)
	b.dismiss(c)
	b.mu.Unlock()
	if ended > 0 {
		b.log.Info("a process has ended, and so have its leases", "pid", c.PID(), "sessions", len(sessions), "leases", ended)
	}
}

// take charges a client with an object, unless it would have too much.
func (c *Client) take(size int64) bool {
	b := c.book
	b.mu.Lock()
	defer b.mu.Unlock()
	if size > b.limits.Held-c.held || c.items >= b.limits.items() {
		return false
	}
	c.charge(1, size)
	return true
}

// give takes a charge back.
func (c *Client) give(items, size int64) {
	c.book.mu.Lock()
	defer c.book.mu.Unlock()
	c.charge(-items, -size)
}

func (c *Client) charge(items, size int64) {
	c.items += items
	c.held += size
	c.book.counts.Held += size
}
