package folder

import (
	"sync"

	"github.com/ringcache/ringcache/tier"
)

// claims are the objects that calls of this level are writing. Those that other processes write are not known before they
// are complete.
type claims struct {
	mu   sync.Mutex
	puts map[tier.Key]*putCall
}

// add claims an object for a call. It returns false if another call has claimed it.
func (c *claims) add(k tier.Key, by *putCall) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if other, ok := c.puts[k]; ok {
		return other == by // the same object twice in a batch
	}
	if c.puts == nil {
		c.puts = map[tier.Key]*putCall{}
	}
	c.puts[k] = by
	by.claimed = append(by.claimed, k)
	return true
}

// release releases what a call has claimed.
func (c *claims) release(by *putCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range by.claimed {
		delete(c.puts, k)
	}
}

func (c *claims) has(k tier.Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.puts[k] != nil
}
