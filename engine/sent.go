package engine

import (
	"sync"

	"github.com/ringcache/ringcache/mmcache"
)

// sentItems remembers how many tokens the items take that an engine of mode lru
// keeps: those go by their keys alone.
type sentItems struct {
	mu    sync.Mutex
	items map[string]sentItem
	seq   uint64
	limit int // the size from which on what the engine dropped is forgotten
}

type sentItem struct {
	tokens int
	seq    uint64
}

const firstSweep = 1024

func (s *sentItems) get(key string) (tokens int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	it, ok := s.items[key]
	return it.tokens, ok
}

func (s *sentItems) put(key string, tokens int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.items == nil {
		s.items, s.limit = map[string]sentItem{}, firstSweep
	}
	s.seq++
	s.items[key] = sentItem{tokens, s.seq}
}

// sweep forgets what is not cached any more, once in a while.
func (s *sentItems) sweep(c *mmcache.Cache) {
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
