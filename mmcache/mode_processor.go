package mmcache

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ringcache/ringcache/lrusync"
)

// processorOnly keeps items here. What a request uses is pinned, so that memory
// which is evicted is memory that is free.
//
// What holds between calls: an entry is pinned while it has users; one that is
// doomed has some.
type processorOnly struct {
	none
	events *events

	mu  sync.Mutex
	lru *lrusync.LRU[*kept]
}

// kept is a cached item.
type kept struct {
	entry  entry
	users  int
	doomed bool // was invalidated; goes with its last user
}

func newProcessorOnly(o Options, ev *events) *processorOnly {
	p := &processorOnly{events: ev}
	p.lru = lrusync.NewLRU(o.Capacity, lrusync.LRUOptions[*kept]{OnRemove: func(key string, k *kept) {
		if !k.doomed {
			ev.emit(Event{Kind: Evicted, Key: key})
		}
	}})
	return p
}

func (p *processorOnly) find(key string) (*entry, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k, _, ok := p.lru.Peek(key)
	if !ok || k.doomed {
		return nil, false
	}
	p.lru.Touch(key)
	return p.use(k), true
}

func (p *processorOnly) use(k *kept) *entry {
	k.users++
	p.lru.Pin(k.entry.key)
	e := k.entry
	e.free = func() { p.unuse(k) }
	return &e
}

func (p *processorOnly) unuse(k *kept) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k.users--; k.users > 0 {
		return
	}
	p.lru.Unpin(k.entry.key)
	if k.doomed {
		p.lru.Pop(k.entry.key)
	}
}

func (p *processorOnly) admit(b *Builder) (*entry, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := b.heapEntry()
	if p.lru.Has(b.key) {
		e.cause = InUse
		return e, nil
	}
	k := &kept{entry: *e}
	k.entry.cached = true
	// Prompt updates are memory too; upstream does not count them.
	err := p.lru.Put(b.key, k, b.size+int64(len(b.updates)))
	switch {
	case errors.Is(err, lrusync.ErrPinned):
		e.cause = Full
	case errors.Is(err, lrusync.ErrTooLarge):
		e.cause = TooLarge
	case err != nil:
		return nil, err
	default:
		p.events.emit(Event{Kind: Added, Key: b.key})
		return p.use(k), nil
	}
	return e, nil
}

func (p *processorOnly) invalidate(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	k, _, ok := p.lru.Peek(key)
	switch {
	case !ok || k.doomed:
		return false
	case k.users > 0:
		k.doomed = true
		p.events.emit(Event{Kind: Evicted, Key: key})
	default:
		p.lru.Pop(key)
	}
	return true
}

func (p *processorOnly) clear(_ context.Context, send func(lrusync.Envelope) error) error {
	if err := send(lrusync.Envelope{}); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lru.Clear()
	return nil
}

func (p *processorOnly) contents() (all []lrusync.KeySize, size int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, e := range p.lru.All() {
		if !e.Value.doomed {
			all = append(all, lrusync.KeySize{Key: key, Size: e.Size})
		}
	}
	return all, p.lru.Size()
}

func (p *processorOnly) check() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	errs := []error{p.lru.CheckStructure()}
	for key, e := range p.lru.All() {
		if k := e.Value; k.users < 0 || e.Pinned != (k.users > 0) || k.doomed && k.users == 0 {
			errs = append(errs, fmt.Errorf("mmcache: %q has %d users, pinned %t, doomed %t", key, k.users, e.Pinned, k.doomed))
		}
	}
	return errors.Join(errs...)
}
