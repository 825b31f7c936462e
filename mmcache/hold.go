package mmcache

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// Hold keeps an item in the cache until it is released, or a request takes it over.
type Hold struct {
	// Item is the item as it was found.
	Item Item

	c     *cache
	tx    transaction
	since time.Time
	ended atomic.Bool
}

func (c *cache) Lookup(ctx context.Context, key string) (*Hold, bool, error) {
	if err := c.enter(ctx, ""); err != nil {
		return nil, false, err
	}
	h := &Hold{c: c, tx: transaction{transactor: c.backend}, since: time.Now()}
	if err := h.tx.begin(&h.tx, "hold of "+key); err != nil {
		c.gate.Release(1)
		return nil, false, err
	}
	e, ok := h.tx.find(&h.tx, key)
	if !ok {
		h.tx.end(&h.tx, rollback)
		c.gate.Release(1)
		return nil, false, nil
	}
	h.Item = newItem(&e, true)
	c.mu.Lock()
	closed := c.done.Err() != nil
	c.holds[h] = struct{}{}
	c.mu.Unlock()
	if closed { // abandoned meanwhile
		h.Release()
		return nil, false, errStopped("")
	}
	return h, true, nil
}

// Begin begins a request as Begin of the [Cache] does, in the place of the hold, which
// it ends, whatever it returns. An item that was held stays for the request, if wants
// name it. A Clear that waits for the hold does not hold up the request, and waits for the
// request, too. Begin fails with [fs.ErrInvalid] if the hold has ended.
func (h *Hold) Begin(ctx context.Context, id string, wants ...Want) (*Request, error) {
	if !h.end() {
		return nil, fmt.Errorf("%w: the hold of item %q has ended", errInvalid, h.Item.Key)
	}
	defer h.tx.end(&h.tx, rollback) // when the request has it
	r, err := h.c.register(id, wants)
	if err != nil {
		h.c.gate.Release(1)
		return nil, err
	}
	return r.begin(ctx) // in the hold's place in the gate
}

// Release ends the hold. Releasing twice is fine.
func (h *Hold) Release() {
	if h.end() {
		h.tx.end(&h.tx, rollback)
		h.c.gate.Release(1)
	}
}

// end reports whether the caller is the one who ends the hold.
func (h *Hold) end() bool {
	if !h.ended.CompareAndSwap(false, true) {
		return false
	}
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	delete(h.c.holds, h)
	return true
}
