package generate

import (
	"slices"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/model"
)

// LRUOptions configure [LRU].
type LRUOptions struct {
	// Release, if its Version is not "", is written into every lru.new.
	Release model.Release
	// Upstream leaves out what vLLM itself can't do in the release: operations that it does not
	// have, and those from which it never returns (see model.CacheOptions).
	Upstream bool
	// Capacity of all caches, any small one if 0.
	Capacity float64
	// GrowAnew are the values of grow_anew to choose from, both if empty. A real LRUCache has
	// that of the cachetools which is installed.
	GrowAnew []bool
	// Without are operations that the system does not have.
	Without []string
}

// LRU makes operations on an LRU cache with sizes. It aims at what fits exactly, one more and one
// less, at values replaced by larger and smaller ones, at caches in which all is pinned, at the
// oldest of an empty cache, at absent keys and at sizes of 0 and above the capacity.
func LRU(o LRUOptions) fuzz.Generator {
	return func(c *fuzz.Choices, length int) []fuzz.Op {
		m := model.NewLRU(newestRelease(o.Release), model.CacheOptions{Upstream: o.Upstream})
		s := &lruScript{cacheScript{Choices: c, model: m, length: length}, o, 0}
		s.make()
		for !s.full() {
			if s.step().Kind == "hang" {
				s.do("lru.close", nil)
				s.make()
			}
		}
		return s.ops[:min(len(s.ops), length)]
	}
}

type lruScript struct {
	cacheScript
	options  LRUOptions
	capacity float64
}

// do is that of cacheScript, on the one cache that there is.
func (s *lruScript) do(operation string, args map[string]any) fuzz.Reply {
	if slices.Contains(s.options.Without, operation) {
		return fuzz.Reply{}
	}
	if args == nil {
		args = map[string]any{}
	}
	args["lru"] = "l"
	return s.cacheScript.do(operation, args)
}

func (s *lruScript) make() {
	s.capacity = s.cacheScript.capacity(s.options.Capacity)
	args := map[string]any{"capacity": s.capacity}
	if v := s.options.Release.Version; v != "" {
		args["generation"] = v
	}
	grow := s.options.GrowAnew
	if len(grow) == 0 {
		grow = []bool{false, true}
	}
	if fuzz.Pick(s.Choices, grow...) {
		args["grow_anew"] = true
	}
	s.do("lru.new", args)
}

func (s *lruScript) step() fuzz.Reply {
	switch n := s.Int(100); {
	case n < 36:
		key := s.anyKey()
		args := map[string]any{"key": key, "size": s.size(key)}
		if n < 8 && (!s.options.Upstream || newestRelease(s.options.Release).PutIfFits) {
			return s.do("lru.put_if_fits", args)
		}
		return s.do("lru.put", args)
	case n < 50:
		return s.do("lru.get", map[string]any{"key": s.anyKey()})
	case n < 54:
		return s.do("lru.has", map[string]any{"key": s.anyKey()})
	case n < 66:
		return s.do("lru.touch", map[string]any{"key": s.anyKey()})
	case n < 71:
		return s.do("lru.pop", map[string]any{"key": s.anyKey()})
	case n < 76:
		if s.Percent(30) {
			return s.do("lru.popitem", map[string]any{"remove_pinned": true})
		}
		return s.do("lru.popitem", nil)
	case n < 83:
		return s.do("lru.pin", map[string]any{"key": s.anyKey()})
	case n < 84:
		return s.pinAll()
	case n < 86:
		return s.do("lru.clear", nil)
	case n < 91:
		return s.do("lru.stat", map[string]any{"delta": s.Percent(50)})
	case n < 92:
		s.do("lru.close", nil)
		s.make()
		return fuzz.Reply{}
	}
	return s.do("lru.state", nil)
}

// peek returns what is cached, oldest first, and appends nothing.
func (s *lruScript) peek() (order []string, sizes map[string]int64, size int64) {
	replies, err := s.model.Do([]fuzz.Op{{Name: "lru.state", Args: map[string]any{"lru": "l"}}})
	if err != nil || replies[0].Kind != "" {
		return nil, nil, 0
	}
	f := replies[0].Fields
	return f["order"].([]string), f["sizes"].(map[string]int64), f["size"].(int64)
}

// anyKey returns one that is cached, the oldest above all, or any.
func (s *lruScript) anyKey() string {
	order, _, _ := s.peek()
	switch n := s.Int(10); {
	case n < 2 && len(order) > 0:
		return order[0]
	case n < 5 && len(order) > 0:
		return fuzz.Pick(s.Choices, order...)
	}
	return s.key()
}

// size returns one at a border for a key, or any.
func (s *lruScript) size(key string) int64 {
	_, sizes, used := s.peek()
	whole := int64(s.capacity) // what fits, without the fraction
	free := whole - used
	var n int64
	switch s.Int(8) {
	case 0: // what is free, one more, one less
		n = free + int64(s.Int(3)) - 1
	case 1: // what is free once the old value is gone
		n = free + sizes[key] + int64(s.Int(3)) - 1
	case 2: // another size in the place of the old one
		n = sizes[key] + int64(s.Int(5)) - 2
	case 3: // the cache alone
		n = whole + int64(s.Int(3)) - 1
	case 4:
		n = int64(s.Int(2))
	default:
		n = int64(s.Int(int(whole) + 3))
	}
	if s.Percent(98) {
		n = max(n, 0)
	}
	return n
}

func (s *lruScript) pinAll() fuzz.Reply {
	order, _, _ := s.peek()
	var r fuzz.Reply
	for _, key := range order {
		if !s.full() {
			r = s.do("lru.pin", map[string]any{"key": key})
		}
	}
	return r
}
