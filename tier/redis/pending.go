package redis

import (
	"fmt"
	"sync"

	"github.com/ringcache/ringcache/tier"
)

// pending has the objects that this level is writing. Objects that other processes write are not known before
// they are complete.
type pending struct {
	mu   sync.Mutex
	puts map[tier.Key]*claims // guarded by mu
}

// claims are the objects that one call of Put writes.
type claims struct {
	of   *pending
	keys []tier.Key
}

// add claims an object. It returns false if another call has claimed it.
func (c *claims) add(k tier.Key) bool {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if by, ok := c.of.puts[k]; ok {
		return by == c // the same object twice in a batch
	}
	if c.of.puts == nil {
		c.of.puts = map[tier.Key]*claims{}
	}
	c.of.puts[k] = c
	c.keys = append(c.keys, k)
	return true
}

// release releases all claims.
func (c *claims) release() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	for _, k := range c.keys {
		delete(c.of.puts, k)
	}
}

func (p *pending) has(k tier.Key) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.puts[k] != nil
}

func isPending(k tier.Key) error {
	return fmt.Errorf("tier/redis: object %v: another call is storing it: %w", k, tier.ErrPending)
}
