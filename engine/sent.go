package engine

import (
	"fmt"
	"sync"

	"github.com/ringcache/ringcache/mmcache"
)

// sentItems contains how many tokens the items take that an engine was sent. In
// mode lru only their keys are sent afterwards. An engine keeps what it computed of an
// item by its key, so another number of tokens under the same key ends the engine.
type sentItems struct {
	mu    sync.Mutex
	items map[string]sentItem
	seq   uint64
	limit int // the size from which on what is not cached any more is forgotten
}

type sentItem struct {
	tokens   int
	computed bool // the engine's encoder may have it
	seq      uint64
}

const firstSweep = 1024

func (s *sentItems) get(key string) (tokens int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	it, ok := s.items[key]
	return it.tokens, ok
}

// check fails if the engine was sent another item of that key.
func (s *sentItems) check(key string, tokens int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if it, ok := s.items[key]; ok && it.computed && it.tokens != tokens {
		return fmt.Errorf("it takes %d tokens, and took %d before; the engine goes by the key: use another, or ResetEncoderCache", tokens, it.tokens)
	}
	return nil
}

// put adds an item that was sent.
func (s *sentItems) put(key string, tokens int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.items == nil {
		s.items, s.limit = map[string]sentItem{}, firstSweep
	}
	s.seq++
	s.items[key] = sentItem{tokens, true, s.seq}
}

// reset is called when the engine's encoder has forgotten everything.
func (s *sentItems) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, it := range s.items {
		it.computed = false
		s.items[k] = it
	}
}

// sweep forgets items that are not cached any more, once in a while. The engine's
// encoder may still have them, as it may with vLLM's own frontend.
func (s *sentItems) sweep(c mmcache.Cache) {
	s.mu.Lock()
	seq, due := s.seq, len(s.items) > s.limit
	s.mu.Unlock()
	if !due {
		return
	}
	cached := map[string]bool{}
	for k := range c.Keys() {
		cached[k] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, it := range s.items {
		if it.seq <= seq && !cached[k] { // later ones may not have been cached yet
			delete(s.items, k)
		}
	}
	s.limit = max(firstSweep, 2*len(s.items))
}
