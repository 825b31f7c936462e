package lmcache

import (
	"fmt"

	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
	"github.com/ringcache/ringcache/kv"
)

// parseLayout reads the layout of a registration, for chunks of so many tokens.
func parseLayout(q *mp.RegisterKvCacheEngineDrivenContextRequest, engine string, chunk int) (kv.Layout, error) {
	groups := q.GroupLayouts
	if len(groups) == 0 {
		// The slots of a chunk are its tokens, but for engines that say otherwise.
		groups = []*mp.GroupLayout{{NumLayers: q.NumLayers, HiddenDimSize: q.HiddenDimSize, DtypeStr: q.DtypeStr, WindowTokens: q.NumPhysicalSlots}}
	}
	l := kv.Layout{Model: q.ModelName, Engine: engine, World: bounded(q.WorldSize), ChunkTokens: chunk}
	for i, g := range groups {
		planes := bounded(g.KvSize)
		if planes == 0 {
			planes = 2
			if q.UseMla {
				planes = 1
			}
		}
		slots, block := bounded(g.WindowTokens), bounded(g.TokensPerBlock)
		if slots == 0 {
			slots = chunk
		}
		if block == 0 {
			block = bounded(q.BlockSize)
		}
		l.Groups = append(l.Groups, kv.Group{
			Layers: bounded(g.NumLayers), Slots: slots, Hidden: bounded(g.HiddenDimSize), DType: g.DtypeStr, Planes: planes,
			BlockTokens: block, Window: bounded(g.WindowChunks), Recurrent: g.Recurrent,
		})
		if i == maxGroups {
			break // which Validate refuses
		}
	}
	if err := l.Validate(); err != nil {
		return kv.Layout{}, fmt.Errorf("lmcache: the registration of the engine: %w", err)
	}
	return l, nil
}

// maxGroups is the most groups of a layout.
const maxGroups = 64

// bounded is a number of a message as an int; what is out of every bound stays so.
func bounded(n int64) int { return int(max(-1, min(n, 1<<40))) }

// needs reports whether a prefix of n chunks needs the object of a chunk, of a group with a window.
func needs(window, chunk, n int) bool {
	return chunk < n && (window == 0 || chunk >= n-window)
}

// spacesOf returns the spaces of the groups of a worker.
func spacesOf(l kv.Layout, worker int, salt string) ([]string, error) {
	spaces := make([]string, len(l.Groups))
	for g := range spaces {
		var err error
		if spaces[g], err = l.Space(worker, g, salt); err != nil {
			return nil, err
		}
	}
	return spaces, nil
}
