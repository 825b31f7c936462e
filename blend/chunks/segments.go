package chunks

import (
	"sync"

	"github.com/ringcache/ringcache/blend"
	"github.com/ringcache/ringcache/kv"
)

// segments knows chunks of any length, which stand between separators.
type segments struct {
	database *kv.TokenDatabase

	mu    sync.RWMutex
	known map[string]bool // by name
}

func (s *segments) Name(tokens []int64) (string, error) {
	all, err := s.database.Chunks(tokens, 0, nil)
	if err != nil {
		return "", err
	}
	if len(all) != 1 || all[0].Start != 0 || all[0].End != len(tokens) {
		return "", invalid("%d tokens with a separator in them", len(tokens))
	}
	return all[0].Key.Hash, nil
}

func (s *segments) Insert(_ uint64, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[name] = true
	return nil
}

func (s *segments) Remove(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.known[name]
	delete(s.known, name)
	return known
}

func (s *segments) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.known)
}

func (s *segments) Find(prompt []int64) ([]blend.Match, error) {
	all, err := s.database.Chunks(prompt, 0, nil)
	if err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []blend.Match
	for _, c := range all {
		if c.End > c.Start && s.known[c.Key.Hash] {
			out = append(out, blend.Match{Start: c.Start, End: c.End, Name: c.Key.Hash})
		}
	}
	return out, nil
}
