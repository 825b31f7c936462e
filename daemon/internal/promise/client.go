package promise

import (
	"fmt"

	"github.com/ringcache/ringcache/daemon/internal/process"
	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/tier"
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
	items    int64 // objects, each counted for each lease
	held     int64 // bytes of items
	wishes   wishes
}

// Enter returns the client of a process, which the book takes over: it closes p. Each Enter needs a Leave. A
// client is one process, so that what it may have does not grow with its connections. allowed is the most
// connections of one process, if others have none.
func (b *Book) Enter(p *process.Process, allowed int) (*Client, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		p.Close()
		return nil, ErrClosed
	}
	c := b.clientOf(p)
	total := int64(b.limits.Connections)
	if !(share{int64(allowed), total}).allows(int64(c.entered), 1, total-int64(b.entered)-1) {
		others := b.entered - c.entered
		b.dismiss(c)
		return nil, fmt.Errorf("%w: process %d has %d connections and others have %d, which leaves it no more; close some, or raise max-connections", ErrLimit, c.PID(), c.entered, others)
	}
	c.enter(1)
	return c, nil
}

// enter counts connections. The caller has the lock of the book.
func (c *Client) enter(n int) {
	c.entered += n
	c.book.entered += n
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
	c.enter(-1)
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
		b.ended.Info(b.log, "a process has ended, and so have its leases", "pid", c.PID(), "sessions", len(sessions), "leases", ended)
	}
}

// heldObject is an object that leases have, or want to reserve.
type heldObject struct {
	leases int
	size   int64 // see correct
}

// take charges a client with an object that a lease of it gets, unless it would have too much.
func (c *Client) take(k tier.Key, size int64) bool {
	b := c.book
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.limits
	h, held := b.objects[k]
	objects, bytes := int64(len(b.objects)), b.bytes+size-h.size
	if !held {
		objects++
	}
	if !l.bytes().allows(c.held, size, l.Memory-bytes) || !quarter(l.Objects).allows(c.items, 1, l.Objects-objects) ||
		!quarter(l.Pins).allows(c.items, 1, l.Pins-b.items-1) {
		return false
	}
	c.charge(k, size)
	return true
}

// charge is take of what a lease has already. The caller has the lock of the book.
func (c *Client) charge(k tier.Key, size int64) {
	b := c.book
	c.items++
	c.held += size
	b.items++
	b.counts.Held += size
	h := b.objects[k]
	if h.leases == 0 {
		h.size = size
		b.bytes += size
	}
	h.leases++
	b.objects[k] = h
}

// correct notes the size of an object, as the store has it. Until then it is what somebody claimed who wanted
// to reserve the object, which may be there already, in another size: nobody else pays for the lie.
func (b *Book) correct(k tier.Key, size int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h := b.objects[k]; h.leases > 0 && h.size != size {
		b.bytes += size - h.size
		h.size = size
		b.objects[k] = h
	}
}

// give takes a charge back. The caller has the lock of the book.
func (c *Client) give(k tier.Key, size int64) {
	b := c.book
	c.items--
	c.held -= size
	b.items--
	b.counts.Held -= size
	h := b.objects[k]
	if h.leases--; h.leases > 0 {
		b.objects[k] = h
		return
	}
	b.bytes -= h.size
	delete(b.objects, k)
}
