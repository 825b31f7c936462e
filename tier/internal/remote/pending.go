package remote

import (
	"sync"

	"github.com/ringcache/ringcache/tier"
)

// Pending has the objects that a level is writing. Objects that other processes write are not known before
// they are complete. The zero value has none.
type Pending struct {
	mu   sync.Mutex
	puts map[tier.Key]*Claims // guarded by mu
}

// Claims are the objects that one call of Put writes. One goroutine uses them.
type Claims struct {
	of   *Pending
	keys []tier.Key
}

// Claims begins a call of Put.
func (p *Pending) Claims() *Claims { return &Claims{of: p} }

// Add claims an object. It returns false if another call has claimed it.
func (c *Claims) Add(k tier.Key) bool {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if by, ok := c.of.puts[k]; ok {
		return by == c // the same object twice in a batch
	}
	if c.of.puts == nil {
		c.of.puts = map[tier.Key]*Claims{}
	}
	c.of.puts[k] = c
	c.keys = append(c.keys, k)
	return true
}

// Release releases all claims.
func (c *Claims) Release() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	for _, k := range c.keys {
		delete(c.of.puts, k)
	}
}

// Has reports whether a call has claimed an object.
func (p *Pending) Has(k tier.Key) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.puts[k] != nil
}
