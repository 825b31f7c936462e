package mmcache

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ringcache/ringcache/internal/invariants"
	"github.com/ringcache/ringcache/internal/lru"
	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/serde"
)

// processorOnly is a cache of mode processor_only, which keeps items here. What a
// request uses is pinned, so that memory which is evicted is memory that is free.
//
// What holds between calls: an entry is pinned while it has users; one that was
// invalidated and is still there has some.
type processorOnly struct {
	*cache
	inHeap

	mu  sync.Mutex
	lru *lru.Cache[*cachedEntry]
}

// cachedEntry is an item in the cache of mode processor_only. users and invalidated
// are guarded by its lock.
type cachedEntry struct {
	entry
	users       int  // transactions that it is pinned for
	invalidated bool // goes with its last user, and is found by nobody
}

func openProcessorOnly(o Options) (*processorOnly, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &processorOnly{cache: newCache(o)}
	p.backend = p
	p.lru = lru.New(o.Capacity, lru.Options[*cachedEntry]{OnRemove: func(key string, e *cachedEntry) {
		if !e.invalidated {
			p.events.emit(Event{Kind: eventEvicted, Key: key})
		}
	}})
	return p, nil
}

func (*processorOnly) begin(*transaction, string) error { return nil }

func (p *processorOnly) find(t *transaction, key string) (entry, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, _, ok := p.lru.Peek(key)
	if !ok || e.invalidated {
		return entry{}, false
	}
	p.lru.Touch(key)
	p.pin(t, e)
	p.checkChange()
	return e.entry, true
}

// pin keeps an entry until a transaction ends.
func (p *processorOnly) pin(t *transaction, e *cachedEntry) {
	e.users++
	p.lru.Pin(e.key)
	t.pinned = append(t.pinned, e)
}

func (p *processorOnly) room(t *transaction, _ *Builder, it *serde.Item) (room, error) {
	h, err := newHeapRoom(it, nil)
	if err != nil {
		return nil, err
	}
	return &cacheableRoom{h, p, t}, nil
}

func (*processorOnly) commit(_ context.Context, r *Request, send func(Batch) error) error {
	return send(Batch{Items: r.wires()})
}

func (p *processorOnly) end(t *transaction, _ ending) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range t.pinned {
		if e.users--; e.users > 0 {
			continue
		}
		p.lru.Unpin(e.key)
		if e.invalidated {
			p.lru.Pop(e.key)
		}
	}
	p.checkChange()
}

// cacheableRoom is memory on the heap that the cache takes over if it can.
type cacheableRoom struct {
	*heapRoom
	p *processorOnly
	t *transaction
}

func (c *cacheableRoom) done(b *Builder) (entry, error) {
	p := c.p
	p.mu.Lock()
	defer p.mu.Unlock()
	e := b.entry(onHeap)
	e.item = c.item
	if p.lru.Has(e.key) {
		e.refused = errInUse
		return e, nil
	}
	cached := &cachedEntry{entry: e}
	cached.where = inCache
	err := p.lru.Put(e.key, cached, e.bytes())
	switch {
	case errors.Is(err, lru.ErrPinned):
		e.refused = errFull
	case errors.Is(err, lru.ErrTooLarge):
		e.refused = errTooLarge
	case err != nil:
		return entry{}, err
	default:
		p.events.emit(Event{Kind: eventAdded, Key: e.key})
		p.pin(c.t, cached)
		p.checkChange()
		return cached.entry, nil
	}
	return e, nil
}

func (p *processorOnly) invalidate(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, _, ok := p.lru.Peek(key)
	switch {
	case !ok || e.invalidated:
		return false
	case e.users > 0:
		e.invalidated = true
		p.events.emit(Event{Kind: eventEvicted, Key: key})
	default:
		p.lru.Pop(key)
	}
	p.checkChange()
	return true
}

func (p *processorOnly) clear(_ context.Context, send func(lrusync.Envelope) error) error {
	if err := send(lrusync.Envelope{}); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lru.Clear()
	p.cleared()
	return nil
}

func (p *processorOnly) contents() (all []lrusync.KeySize) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, e := range p.lru.All() {
		if !e.Value.invalidated {
			all = append(all, lrusync.KeySize{Key: key, Size: e.Size})
		}
	}
	return all
}

func (p *processorOnly) measure() (items, bytes, quarantined int64) {
	items = int64(len(p.contents()))
	p.mu.Lock()
	defer p.mu.Unlock()
	return items, p.lru.Size(), 0
}

func (p *processorOnly) check() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.checkLocked()
}

// checkChange is check after a change. p.mu is held.
func (p *processorOnly) checkChange() {
	if checkNow(p.lru.Len()) {
		invariants.Must(p.checkLocked())
	}
}

func (p *processorOnly) checkLocked() error {
	errs := []error{p.lru.CheckStructure()}
	for key, l := range p.lru.All() {
		if e := l.Value; e.users < 0 || l.Pinned != (e.users > 0) || e.invalidated && e.users == 0 {
			errs = append(errs, fmt.Errorf("mmcache: %q has %d users, pinned %t, invalidated %t",
				key, e.users, l.Pinned, e.invalidated))
		}
	}
	return errors.Join(errs...)
}
