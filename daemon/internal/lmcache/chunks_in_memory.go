package lmcache

import (
	"context"
	"encoding/hex"
	"iter"
	"slices"

	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/lmcache/coordinator"
)

// NewInMemory returns what a coordinator is told of.
func NewInMemory(s *Server) InMemory { return InMemory{s} }

// InMemory is the chunks that a Server has in memory.
type InMemory struct{ s *Server }

// Chunks lists the objects in memory that engines with a layout that is remembered find. An object's tenant says
// which salt it has, so one with a salt that is longer than a tenant is left out.
func (m InMemory) Chunks(ctx context.Context) iter.Seq2[coordinator.Chunk, error] {
	s := m.s
	return func(yield func(coordinator.Chunk, error) bool) {
		s.mu.Lock()
		layouts := slices.Clone(s.state.Layouts)
		s.mu.Unlock()
		spaces, salts := map[string]coordinator.Space{}, map[string]bool{}
		for o, err := range s.o.Memory.List(ctx, "") {
			if err != nil {
				yield(coordinator.Chunk{}, err)
				return
			}
			if !salts[o.Tenant] {
				salts[o.Tenant] = true
				addSpaces(spaces, layouts, o.Tenant)
			}
			space, known := spaces[o.Space]
			hash, err := hex.DecodeString(o.Name)
			if !known || err != nil { // another protocol's
				continue
			}
			if !yield(coordinator.Chunk{Space: space, Hash: string(hash), Size: o.Size}, nil) {
				return
			}
		}
	}
}

// addSpaces adds the spaces of all workers and groups of layouts under a salt.
func addSpaces(spaces map[string]coordinator.Space, layouts []kv.Layout, salt string) {
	for _, l := range layouts {
		for worker := range l.World {
			for group := range l.Groups {
				text, err := l.Space(worker, group, salt)
				rank, rankErr := kv.NewRank(l.World, worker, l.World, worker)
				if err != nil || rankErr != nil { // no engine has such a salt
					continue
				}
				spaces[text] = coordinator.Space{Model: l.Model, Rank: rank, Group: uint32(group), Salt: salt}
			}
		}
	}
}

// Changes returns another number when Chunks may list something else than before.
func (m InMemory) Changes() int64 {
	s := m.s
	return s.o.Memory.Usage().Objects + 2*s.events.changes() // what leaves makes the objects fewer by one
}

// ChunkTokens returns the tokens of a chunk, 0 while engines have not agreed on them.
func (m InMemory) ChunkTokens() int {
	s := m.s
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Chunk
}
