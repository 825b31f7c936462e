package upstream

import (
	"errors"
	"sync"

	"github.com/ringcache/ringcache/internal/lru"
	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/pycompat"
)

// frontendCache is what the two caches of a frontend have in common.
type frontendCache[V any] struct {
	mu  sync.Mutex
	lru *lru.Cache[processed[V]]
	gen *pycompat.Generation
}

// processed is what a frontend keeps of an item.
type processed[V any] struct {
	value   V
	updates []byte
}

// Input is an item that was processed.
type Input struct {
	Size    int64  // bytes, by [lrusync.ItemSize]
	Updates []byte // prompt updates, opaque
}

func newFrontendCache[V any](o lrusync.Options) (*frontendCache[V], error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	g, err := pycompat.Resolve(o.Generation)
	if err != nil {
		return nil, err
	}
	return &frontendCache[V]{lru: lru.New(o.Capacity, lru.Options[processed[V]]{}), gen: g}, nil
}

// IsCached reports for each key whether it is cached, and changes nothing
// (is_cached).
func (c *frontendCache[V]) IsCached(keys ...string) []bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]bool, len(keys))
	for i, k := range keys {
		out[i] = c.lru.Has(k)
	}
	return out
}

// Touch makes a key the newest if it is there (touch_sender_cache_item; vLLM 0.12
// on). Where upstream leaves an entry without a value in the order of use, this
// does not; see [lrusync.ErrHang].
func (c *frontendCache[V]) Touch(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lru.Touch(key)
}

// getAndUpdate returns what is cached of a key; hit reports that it was. Else it
// stores what was processed, and returns that.
func (c *frontendCache[V]) getAndUpdate(key string, v V, in *Input) (p processed[V], hit bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.lru.Get(key); ok {
		return p, true, nil
	}
	if in == nil {
		return p, false, missedByFrontend(key)
	}
	p = processed[V]{v, in.Updates}
	err = c.lru.Put(key, p, in.Size)
	if c.gen.Cache.PutIfFits && errors.Is(err, lrusync.ErrTooLarge) {
		err = nil
	}
	return p, false, err
}

// Clear forgets everything (clear_cache).
func (c *frontendCache[V]) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lru.Clear()
}

// Stats returns hits and queries, as make_stats does.
func (c *frontendCache[V]) Stats() lrusync.Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	hits, queries := c.lru.Stats()
	return lrusync.Stats{Hits: hits, Total: queries}
}

// Contents lists what is cached, oldest first, and the bytes of all together.
func (c *frontendCache[V]) Contents() ([]lrusync.KeySize, int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]lrusync.KeySize, 0, c.lru.Len())
	for k, e := range c.lru.All() {
		all = append(all, lrusync.KeySize{Key: k, Size: e.Size})
	}
	return all, c.lru.Size()
}

// CheckStructure reports a broken invariant.
func (c *frontendCache[V]) CheckStructure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lru.CheckStructure()
}

// SenderCache is the cache of a frontend whose engine has a [ReceiverCache]: it
// keeps the prompt updates of items, but not their data.
type SenderCache struct{ *frontendCache[struct{}] }

// NewSenderCache returns an empty cache.
func NewSenderCache(o lrusync.Options) (*SenderCache, error) {
	c, err := newFrontendCache[struct{}](o)
	if err != nil {
		return nil, err
	}
	return &SenderCache{c}, nil
}

// GetAndUpdate decides about one item of a request (get_and_update_item): omit
// reports that the engine has it, so that nothing is sent; updates are those that
// were stored with it. in is nil if the caller has no data since IsCached
// reported that none is needed.
//
//   - [MissError] if the item is absent and in is nil;
//   - [lrusync.ErrTooLarge] in generations without PutIfFits; in the others the
//     item is sent and not cached.
func (c *SenderCache) GetAndUpdate(key string, in *Input) (omit bool, updates []byte, err error) {
	p, omit, err := c.getAndUpdate(key, struct{}{}, in)
	return omit, p.updates, err
}

// Invalidate forgets a key (invalidate; vLLM 0.28 on).
func (c *SenderCache) Invalidate(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lru.Pop(key)
}

// ProcessorOnlyCache is the cache of a frontend whose engine keeps none: it saves
// the processing of items, not their transport.
type ProcessorOnlyCache[V any] struct{ *frontendCache[V] }

// NewProcessorOnlyCache returns an empty cache.
func NewProcessorOnlyCache[V any](o lrusync.Options) (*ProcessorOnlyCache[V], error) {
	c, err := newFrontendCache[V](o)
	if err != nil {
		return nil, err
	}
	return &ProcessorOnlyCache[V]{c}, nil
}

// GetAndUpdate returns the cached value and prompt updates of a key, or stores
// what was processed and returns that (get_and_update_item). in is nil if the
// caller has no data. The errors are those of [SenderCache.GetAndUpdate].
func (c *ProcessorOnlyCache[V]) GetAndUpdate(key string, v V, in *Input) (V, []byte, error) {
	p, _, err := c.getAndUpdate(key, v, in)
	return p.value, p.updates, err
}

// Invalidate does nothing, as in vLLM (invalidate; 0.28 on): there is no engine whose copy
// could be missing.
func (c *ProcessorOnlyCache[V]) Invalidate(string) {}
