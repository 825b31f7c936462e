package mmcache

import (
	"context"
	"sync"
	"time"
)

// Hold keeps an item in the cache until it is released.
type Hold struct {
	c     *Cache
	e     *entry
	since time.Time
	once  sync.Once
}

// Lookup returns a hold on a cached item, so that between the look and the use,
// such as after deciding not to download an image, it can't be evicted: begin the
// request, then release the hold. In mode lru it is the engine that keeps the
// item, and may drop it all the same; a request then needs a producer that can
// make it. ctx ends the wait for a Clear that is going on.
//
// A Clear that comes between the look and the request waits for the hold, and the
// request for the Clear, until the context of either ends: give them a deadline, or
// release the hold first.
func (c *Cache) Lookup(ctx context.Context, key string) (*Hold, bool, error) {
	if err := c.enter(ctx, ""); err != nil {
		return nil, false, err
	}
	e, ok := c.back.find(key)
	if !ok {
		c.gate.Release(1)
		return nil, false, nil
	}
	h := &Hold{c: c, e: e, since: time.Now()}
	c.mu.Lock()
	closed := c.closed
	c.holds[h] = struct{}{}
	c.mu.Unlock()
	if closed { // abandoned meanwhile
		h.Release()
		return nil, false, errStopped("")
	}
	return h, true, nil
}

// Updates returns the item's prompt updates. They must not be written to.
func (h *Hold) Updates() []byte { return h.e.updates }

// Size returns the item's bytes by vLLM's rules.
func (h *Hold) Size() int64 { return h.e.size }

// Release ends the hold. Releasing twice is fine.
func (h *Hold) Release() {
	h.once.Do(func() {
		h.e.release()
		h.c.mu.Lock()
		delete(h.c.holds, h)
		h.c.mu.Unlock()
		h.c.gate.Release(1)
	})
}
