package lrusync

import "sync"

// ProcessorOnly is vLLM's cache for a frontend whose engines keep none
// (MultiModalProcessorOnlyCache in vllm/multimodal/cache.py, from 0.31
// cache/base.py): it saves the processing of items, not their transport.
//
// Methods may be called by any number of goroutines. Values are kept, not
// copied.
type ProcessorOnly[V any] struct {
	mu sync.Mutex
	m  *mirror[processed[V]]
}

type processed[V any] struct {
	value   V
	updates []byte
}

// NewProcessorOnly returns an empty cache.
func NewProcessorOnly[V any](o Options) (*ProcessorOnly[V], error) {
	m, err := newMirror[processed[V]](o)
	if err != nil {
		return nil, err
	}
	return &ProcessorOnly[V]{m: m}, nil
}

// Cached reports for each key whether it is cached, and changes nothing
// (is_cached).
func (c *ProcessorOnly[V]) Cached(keys ...string) []bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]bool, len(keys))
	for i, k := range keys {
		out[i] = c.m.Has(k)
	}
	return out
}

// Touch makes a key the newest if it is there (touch_sender_cache_item).
func (c *ProcessorOnly[V]) Touch(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.m.Touch(key)
}

// Update returns the cached value and prompt updates of a key, or stores what
// was processed and returns that (get_and_update_item). in is nil if the caller
// has no data. The errors are those of [Sender.Update].
func (c *ProcessorOnly[V]) Update(key string, v V, in *Input) (V, []byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.m.Get(key); ok {
		return p.value, p.updates, nil
	}
	if in == nil {
		return v, nil, missedBySender(key)
	}
	return v, in.Updates, c.m.insertNew(key, processed[V]{v, in.Updates}, in.Size)
}

// Invalidate forgets a key (invalidate).
func (c *ProcessorOnly[V]) Invalidate(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.m.Pop(key)
}

// Clear forgets everything (clear_cache).
func (c *ProcessorOnly[V]) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.m.Clear()
}

// Stats returns hits and queries, as make_stats does.
func (c *ProcessorOnly[V]) Stats(delta bool) Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.m.Stats(delta)
}

// Contents lists what is cached, oldest first, and the bytes of all together.
func (c *ProcessorOnly[V]) Contents() ([]KeySize, int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.m.contents(), c.m.Size()
}

// CheckStructure reports a broken invariant; there is none unless this package
// is at fault.
func (c *ProcessorOnly[V]) CheckStructure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.m.CheckStructure()
}
