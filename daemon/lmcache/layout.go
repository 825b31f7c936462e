package lmcache

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/ringcache/ringcache/daemon/lmcache/mp"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/tier"
)

// Bounds of a layout.
const (
	maxGroups     = 64
	maxDimension  = 1 << 20
	maxChunkBytes = 4 << 30
)

// layout is how a worker has the KV of a chunk: one object for each group of layers.
type layout []groupLayout

// groupLayout is the layout of the layers that share a cache in the engine.
type groupLayout struct {
	Layers, Hidden int
	Dtype          string // torch's name
	Planes         int    // 2 if K and V are apart, else 1
	Tokens         int    // of an object: the chunk's, or those of a window or a state
	// Window is of how many chunks, at the end, a prefix needs the group's objects: 0 is all.
	Window int
}

// shape is the shape of an object.
func (g *groupLayout) shape() []int {
	if g.Planes == 2 {
		return []int{2, g.Layers, g.Tokens, g.Hidden}
	}
	return []int{g.Layers, g.Tokens, g.Hidden}
}

// bytes is the size of an object.
func (g *groupLayout) bytes() int64 {
	dtype, _ := serde.ParseDType(g.Dtype)
	return int64(g.Planes) * int64(g.Layers) * int64(g.Tokens) * int64(g.Hidden) * int64(dtype.ItemSize())
}

// parseLayout reads the layout of a registration.
func parseLayout(q *mp.RegisterKvCacheEngineDrivenContextRequest, chunk int) (layout, error) {
	groups := q.GroupLayouts
	if len(groups) == 0 {
		groups = []*mp.GroupLayout{{NumLayers: q.NumLayers, HiddenDimSize: q.HiddenDimSize, DtypeStr: q.DtypeStr}}
	}
	if len(groups) > maxGroups {
		return nil, fmt.Errorf("lmcache: the engine registers %d groups, and %d are the most: %w", len(groups), maxGroups, fs.ErrInvalid)
	}
	l := make(layout, len(groups))
	for i, g := range groups {
		invalid := func(text string, args ...any) (layout, error) {
			return nil, fmt.Errorf("lmcache: group %d of the engine's registration: "+text+": %w", append([]any{i}, append(args, fs.ErrInvalid)...)...)
		}
		for _, n := range []int64{g.NumLayers, g.HiddenDimSize} {
			if n < 1 || n > maxDimension {
				return invalid("num_layers and hidden_dim_size are %d and %d, each of 1 to %d", g.NumLayers, g.HiddenDimSize, maxDimension)
			}
		}
		if g.WindowTokens < 0 || g.WindowTokens > maxDimension || g.WindowChunks < 0 || g.WindowChunks > maxDimension {
			return invalid("window_tokens and window_chunks are %d and %d, each of 0 to %d", g.WindowTokens, g.WindowChunks, maxDimension)
		}
		if _, ok := serde.ParseDType(g.DtypeStr); !ok {
			return invalid("the dtype %.40q is not known", g.DtypeStr)
		}
		planes := int(g.KvSize)
		switch {
		case g.KvSize == 0 && q.UseMla:
			planes = 1
		case g.KvSize == 0:
			planes = 2
		case g.KvSize != 1 && g.KvSize != 2:
			return invalid("kv_size is %d, of 0 to 2", g.KvSize)
		}
		tokens := int(g.WindowTokens)
		if tokens == 0 {
			tokens = chunk
		}
		l[i] = groupLayout{Layers: int(g.NumLayers), Hidden: int(g.HiddenDimSize), Dtype: g.DtypeStr, Planes: planes, Tokens: tokens, Window: int(g.WindowChunks)}
		// The dimensions are below 2^20 each, so three of them fit 64 bits, and the fourth is looked at on the way.
		if n := int64(l[i].Layers) * int64(l[i].Tokens) * int64(l[i].Planes); n > maxChunkBytes || n*int64(l[i].Hidden) > maxChunkBytes || l[i].bytes() > maxChunkBytes {
			return invalid("a chunk of %d tokens has more than %d bytes", chunk, int64(maxChunkBytes))
		}
	}
	return l, nil
}

// needs reports whether a prefix of n chunks needs the object of a group and a chunk.
func (l layout) needs(group, chunk, n int) bool {
	w := l[group].Window
	return chunk < n && (w == 0 || chunk >= n-w)
}

// prefix returns how many chunks are there, and whether that may become more when what is pending is there. found has
// the errors of the objects of so many chunks, chunk by chunk, each group by group.
func (l layout) prefix(found []error, chunks int) (n int, pending bool) {
	// run is how many chunks in a row, up to the one that is looked at, each group has.
	run := make([]int, len(l))
	for chunk := range chunks {
		all := true
		for g := range l {
			err := found[chunk*len(l)+g]
			if errors.Is(err, tier.ErrPending) {
				pending = true
			}
			if err == nil {
				run[g]++
			} else {
				run[g] = 0
				if l[g].Window == 0 {
					return n, pending
				}
			}
			if w := l[g].Window; w != 0 && run[g] < min(w, chunk+1) {
				all = false
			}
		}
		if all {
			n, pending = chunk+1, false
		}
	}
	return n, pending
}

func (l layout) equal(m layout) bool { return slices.Equal(l, m) }

// identity is everything that decides whether the bytes of a chunk fit, beside the tokens: what two workers must have
// in common to share objects.
type identity struct {
	Model  string
	World  int
	Worker int
	Salt   string
	Chunk  int // tokens
	Layout layout
}

// space is the space of the objects of an identity. Salts have spaces of their own, so one never meets another's objects.
func (id identity) space() string {
	text, err := json.Marshal(id)
	if err != nil {
		panic(err) // numbers, and texts
	}
	sum := sha256.Sum256(text)
	return spacePrefix + hex.EncodeToString(sum[:16])
}

// spacePrefix begins the spaces of all KV.
const spacePrefix = "kv-"
