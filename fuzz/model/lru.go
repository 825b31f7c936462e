package model

import (
	"fmt"
	"slices"

	"github.com/ringcache/ringcache/fuzz"
)

// CacheOptions configure NewLRU and NewPair.
type CacheOptions struct {
	// Upstream makes the model answer as vLLM itself does where the agent of this module
	// does not (docs/agent.md, "lru and the mirrored pair"):
	//
	//   - up to 0.23 a touch of an absent key leaves it in the order, and vLLM never returns from
	//     an eviction or a clear that comes across it. The reply to that operation, and to all
	//     later ones on the same cache but its close, has the kind "hang";
	//   - what a release does not have is "unsupported": lru.put_if_fits before 0.29, pair.touch
	//     before 0.12, pair.invalidate before 0.28;
	//   - before 0.28 the reply to a miss of a receiver names the first absent key only.
	Upstream bool
}

// LRU is vLLM's LRUCache (vllm/utils/cache.py) as a system that performs the operations lru.* of
// the agent's protocol.
type LRU struct {
	release Release
	options CacheOptions
	caches  map[string]*namedLRU
}

type namedLRU struct {
	lruCache
	release Release
	hung    error // the hang that ended it
}

// NewLRU returns a system without caches. r stands in for the field generation where that is
// absent.
func NewLRU(r Release, o CacheOptions) *LRU {
	return &LRU{release: r, options: o, caches: map[string]*namedLRU{}}
}

// Close does nothing.
func (m *LRU) Close() error { return nil }

// Do performs operations. Others than lru.* are an error.
func (m *LRU) Do(ops []fuzz.Op) ([]fuzz.Reply, error) { return doEach(ops, m.do) }

// lruFields are the fields of each operation.
var lruFields = map[string]string{
	"lru.new": "lru capacity generation grow_anew",
	"lru.put": "lru key size", "lru.put_if_fits": "lru key size",
	"lru.get": "lru key", "lru.has": "lru key", "lru.touch": "lru key", "lru.pop": "lru key", "lru.pin": "lru key",
	"lru.popitem": "lru key remove_pinned", "lru.clear": "lru key", "lru.stat": "lru delta", "lru.state": "lru",
	"lru.close": "lru",
}

func (m *LRU) do(op fuzz.Op) (map[string]any, error) {
	known, ok := lruFields[op.Name]
	if !ok {
		return nil, fmt.Errorf("model: %q is no operation of an LRU cache", op.Name)
	}
	a := readArgs(op, known)
	name := field[string](a, "lru")
	if op.Name == "lru.new" {
		return nil, m.make(name, a)
	}
	c := m.caches[name]
	if c == nil {
		a.fail("there is no lru %q", name)
	}
	if a.err != nil {
		return nil, a.err
	}
	if op.Name == "lru.close" {
		delete(m.caches, name)
		return nil, nil
	}
	if c.hung != nil {
		return nil, c.hung
	}
	fields, err := m.perform(op.Name, c, a)
	if r, ok := err.(*refusal); ok && r.Kind == "hang" {
		c.hung = err
	}
	return fields, err
}

func (m *LRU) make(name string, a *args) error {
	c := &namedLRU{release: a.release(m.release)}
	c.lruCache = lruCache{capacity: a.capacity(), growAnew: fieldOr(a, "grow_anew", false),
		ghosts: m.options.Upstream && c.release.GhostTouch}
	if m.caches[name] != nil {
		a.fail("lru %q exists", name)
	}
	if a.err == nil {
		m.caches[name] = c
	}
	return a.err
}

func (m *LRU) perform(operation string, c *namedLRU, a *args) (map[string]any, error) {
	switch operation {
	case "lru.put", "lru.put_if_fits":
		return m.put(operation, c, a)
	case "lru.popitem":
		evenPinned := fieldOr(a, "remove_pinned", false)
		if a.err != nil {
			return nil, a.err
		}
		e, err := c.popOldest(evenPinned)
		return map[string]any{"key": e.key, "size": e.size}, err
	case "lru.clear":
		return nil, c.clear()
	case "lru.stat":
		delta := fieldOr(a, "delta", false)
		if a.err != nil {
			return nil, a.err
		}
		hits, total := c.stat(delta)
		return map[string]any{"hits": hits, "total": total}, nil
	case "lru.state":
		return c.state(), nil
	}
	key := field[string](a, "key")
	if a.err != nil {
		return nil, a.err
	}
	switch operation {
	case "lru.get":
		return found(c.get(key))
	case "lru.pop":
		return found(c.pop(key))
	case "lru.has":
		return map[string]any{"has": c.find(key) >= 0}, nil
	case "lru.touch":
		c.touch(key)
	case "lru.pin":
		i := c.find(key)
		if i < 0 {
			return nil, &refusal{fuzz.Reply{
				Kind: "invalid", Text: fmt.Sprintf("%q is absent", key),
				Upstream: fmt.Sprintf("Cannot pin key: %s not in cache.", key),
			}}
		}
		c.entries[i].pinned = true
	}
	return nil, nil
}

func (m *LRU) put(operation string, c *namedLRU, a *args) (map[string]any, error) {
	key, size := field[string](a, "key"), field[int64](a, "size")
	if size < 0 {
		a.fail("size %d", size)
	}
	switch {
	case a.err != nil:
		return nil, a.err
	case operation == "lru.put":
		return map[string]any{"stored": true}, c.put(key, size, nil)
	case m.options.Upstream && !c.release.PutIfFits:
		return nil, refuse("unsupported", "vLLM %s has no put_if_fits", c.release.Version)
	}
	stored, err := c.putIfFits(key, size, nil)
	return map[string]any{"stored": stored}, err
}

// found is the reply about a key that may be absent.
func found(e lruEntry, ok bool) (map[string]any, error) {
	if !ok {
		return map[string]any{"found": false}, nil
	}
	return map[string]any{"found": true, "size": e.size}, nil
}

func (c *lruCache) state() map[string]any {
	order, pinned, sizes := []string{}, []string{}, map[string]int64{}
	for _, e := range c.live() {
		order = append(order, e.key)
		sizes[e.key] = e.size
		if e.pinned {
			pinned = append(pinned, e.key)
		}
	}
	slices.Sort(pinned)
	return map[string]any{"order": order, "size": c.size(), "pinned": pinned, "sizes": sizes}
}
