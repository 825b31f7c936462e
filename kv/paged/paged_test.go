package paged_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/kv/paged"
)

var layouts = []paged.Layout{
	paged.FlashAttention, paged.FlashAttentionHND, paged.FlashInfer, paged.FlashInferHND, paged.Packed, paged.PackedHND,
	paged.MLA, paged.SeparateByLayer, paged.SeparateByPlane, paged.AllLayersOfBlock, paged.AllLayersOfBlockHND,
}

// newTensors returns tensors with random bytes.
func newTensors(g paged.Geometry, seed uint64) [][]byte {
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	out := make([][]byte, g.Tensors())
	for i := range out {
		out[i] = make([]byte, g.TensorBytes())
		_, _ = r.Read(out[i])
	}
	return out
}

func clone(tensors [][]byte) [][]byte {
	out := make([][]byte, len(tensors))
	for i := range out {
		out[i] = slices.Clone(tensors[i])
	}
	return out
}

// place returns where the bytes of one head are, by the name of the layout alone.
func place(g paged.Geometry, tensors [][]byte, layer, plane, head int, slot int64) []byte {
	outer, inner := "", string(g.Layout)
	if i := strings.LastIndex(inner, "_X_"); i >= 0 {
		outer, inner = inner[:i], inner[i+3:]
	}
	at := func(dims string) int {
		n := 0
		for d := range strings.SplitSeq(dims, "_") {
			switch d {
			case "NL":
				n = n*g.Layers + layer
			case "TWO":
				n = n*2 + plane
			case "NB":
				n = n*g.Blocks + int(slot)/g.BlockTokens
			case "BS":
				n = n*g.BlockTokens + int(slot)%g.BlockTokens
			case "NH":
				n = n*g.Heads + head
			case "HS", "CS":
				n *= g.HeadSize
			}
		}
		return n
	}
	return tensors[at(strings.ReplaceAll(outer, "_X_", "_"))][at(inner)*g.ElementSize:][:g.HeadSize*g.ElementSize]
}

// inChunk returns where the bytes of one head are in a chunk of so many tokens.
func inChunk(
	g paged.Geometry, chunk []byte, f paged.Format, oneLayer bool, tokens, layer, plane, head, token int,
) []byte {
	n := 0
	switch {
	case f == paged.KVT2D:
		n = token*2 + plane
	case oneLayer:
		n = plane*tokens + token
	default:
		n = (plane*g.Layers+layer)*tokens + token
	}
	size := g.HeadSize * g.ElementSize
	return chunk[(n*g.Heads+head)*size:][:size]
}

func drawGeometry(t *rapid.T) paged.Geometry {
	g := paged.Geometry{
		Layout: rapid.SampledFrom(layouts).Draw(t, "layout"), Layers: rapid.IntRange(1, 3).Draw(t, "layers"),
		Blocks:      rapid.IntRange(1, 6).Draw(t, "blocks"),
		BlockTokens: rapid.SampledFrom([]int{1, 2, 3, 8}).Draw(t, "block"),
		Heads:       rapid.IntRange(1, 3).Draw(t, "heads"),
		HeadSize:    rapid.IntRange(1, 4).Draw(t, "size"),
		ElementSize: rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "element"),
	}
	if g.Layout == paged.MLA {
		g.Heads = 1
	}
	return g
}

// drawSlots draws slots with runs, repetitions and negative ones.
func drawSlots(t *rapid.T, n int) []int64 {
	var slots []int64
	for range rapid.IntRange(0, 5).Draw(t, "runs") {
		first := rapid.IntRange(-2, n-1).Draw(t, "slot")
		for i := range rapid.IntRange(1, 10).Draw(t, "run") {
			if s := first + i; s < n {
				slots = append(slots, int64(s))
			}
		}
	}
	return slots
}

// TestCopiesByElement compares each byte with a model that copies head by head.
func TestCopiesByElement(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGeometry(t)
		tensors := newTensors(g, rapid.Uint64().Draw(t, "seed"))
		b, err := paged.New(g, tensors)
		require.NoError(t, err)
		slots := drawSlots(t, b.Slots())
		f, oneLayer := g.Layout.Whole(), rapid.Bool().Draw(t, "one layer")
		from, to := 0, g.Layers
		if oneLayer {
			from = rapid.IntRange(0, g.Layers-1).Draw(t, "layer")
			to = from + 1
			if f == paged.KV2LTD {
				f = rapid.SampledFrom([]paged.Format{paged.KVT2D, paged.KV2TD}).Draw(t, "format")
			}
		}
		each := func(do func(layer, plane, head, i int)) {
			for layer := from; layer < to; layer++ {
				for plane := range g.Layout.Planes() {
					for i := range slots {
						for head := range g.Heads {
							if slots[i] >= 0 {
								do(layer, plane, head, i)
							}
						}
					}
				}
			}
		}

		chunk := bytes.Repeat([]byte{0xEE}, g.ChunkBytes(len(slots), oneLayer))
		want := slices.Clone(chunk)
		each(func(layer, plane, head, i int) {
			copy(inChunk(g, want, f, oneLayer, len(slots), layer, plane, head, i),
				place(g, tensors, layer, plane, head, slots[i]))
		})
		before := clone(tensors)
		if oneLayer {
			require.NoError(t, b.GatherLayer(chunk, f, from, slots))
		} else {
			require.NoError(t, b.Gather(chunk, slots))
		}
		require.Equal(t, want, chunk)
		require.Equal(t, before, tensors, "a gather changes nothing")

		_, _ = rand.NewChaCha8([32]byte{7}).Read(chunk)
		wanted := clone(tensors)
		each(func(layer, plane, head, i int) {
			copy(place(g, wanted, layer, plane, head, slots[i]),
				inChunk(g, chunk, f, oneLayer, len(slots), layer, plane, head, i))
		})
		if oneLayer {
			require.NoError(t, b.ScatterLayer(slots, from, f, chunk))
		} else {
			require.NoError(t, b.Scatter(slots, chunk))
		}
		require.Equal(t, wanted, tensors)
	})
}

// TestAsLMCache compares chunks with those that LMCache 0.5.6 and 0.5.7 make; see testdata/lmcache_paged.py.
func TestAsLMCache(t *testing.T) {
	file, err := os.ReadFile("testdata/lmcache.json")
	require.NoError(t, err)
	var cases []struct {
		paged.Geometry
		Tensors []string
		Format  paged.Format
		Layer   *int
		Slots   []int64
		Chunk   string
	}
	require.NoError(t, json.Unmarshal(file, &cases))
	seen := map[paged.Layout]int{}
	for i, c := range cases {
		tensors := make([][]byte, len(c.Tensors))
		for i := range tensors {
			tensors[i], err = hex.DecodeString(c.Tensors[i])
			require.NoError(t, err)
		}
		b, err := paged.New(c.Geometry, tensors)
		require.NoError(t, err, "case %d", i)
		chunk := make([]byte, len(c.Chunk)/2)
		if c.Layer != nil {
			err = b.GatherLayer(chunk, c.Format, *c.Layer, c.Slots)
		} else {
			require.Equal(t, c.Format, c.Layout.Whole())
			err = b.Gather(chunk, c.Slots)
		}
		require.NoError(t, err, "case %d", i)
		require.Equal(t, c.Chunk, hex.EncodeToString(chunk), "case %d: %s", i, c.Layout)
		seen[c.Layout]++
	}
	require.Len(t, seen, len(layouts))
	t.Log(len(cases), "cases")
}

var small = paged.Geometry{
	Layout: paged.FlashAttention, Layers: 2, Blocks: 3, BlockTokens: 4, Heads: 2, HeadSize: 2, ElementSize: 2,
}

// TestRefusedCallsChangeNothing: what is wrong is found before the first byte is copied.
func TestRefusedCallsChangeNothing(t *testing.T) {
	tensors := newTensors(small, 1)
	b, err := paged.New(small, tensors)
	require.NoError(t, err)
	before := clone(tensors)
	chunk := make([]byte, small.ChunkBytes(2, false))
	layer := make([]byte, small.ChunkBytes(2, true))
	for _, c := range []struct {
		text string
		err  error
	}{
		{"the slot of token 1 is 12; there are 12", b.Scatter([]int64{0, 12}, chunk)},
		{"the slot of token 1 is 9223372036854775807", b.Gather(chunk, []int64{0, 1<<63 - 1})},
		{"a chunk of 64 bytes; 3 tokens in 2 layers are 96", b.Scatter([]int64{0, 1, 2}, chunk)},
		{"a chunk of 63 bytes", b.Gather(chunk[1:], []int64{0, 1})},
		{"a chunk of 64 bytes; 2 tokens in one layer are 32", b.ScatterLayer([]int64{0, 1}, 0, paged.KVT2D, chunk)},
		{"layer 2 of 2", b.ScatterLayer([]int64{0, 1}, 2, paged.KVT2D, layer)},
		{"layer -1 of 2", b.GatherLayer(layer, paged.KVT2D, -1, []int64{0, 1})},
		{"have not the format KV_2LTD", b.ScatterLayer([]int64{0, 1}, 0, paged.KV2LTD, layer)},
		{"have not the format KV_MLA_FMT", b.GatherLayer(layer, paged.KVMLA, 0, []int64{0, 1})},
		{"have not the format Format(9)", b.GatherLayer(layer, 9, 0, []int64{0, 1})},
	} {
		require.ErrorIs(t, c.err, fs.ErrInvalid)
		require.ErrorContains(t, c.err, c.text)
	}
	require.Equal(t, before, tensors)
	require.Equal(t, make([]byte, len(chunk)), chunk)
	require.Equal(t, make([]byte, len(layer)), layer)
	require.NoError(t, b.Gather(nil, nil))
	require.NoError(t, b.ScatterLayer(nil, 0, paged.KV2TD, nil))
	require.Equal(t, small, b.Geometry())
}

func TestGeometriesAreChecked(t *testing.T) {
	require.NoError(t, small.Validate())
	for text, change := range map[string]func(*paged.Geometry){
		`no layout "NHD"`:                     func(g *paged.Geometry) { g.Layout = "NHD" },
		"0 layers":                            func(g *paged.Geometry) { g.Layers = 0 },
		"-1 blocks":                           func(g *paged.Geometry) { g.Blocks = -1 },
		"3 blocks of 0 tokens":                func(g *paged.Geometry) { g.BlockTokens = 0 },
		"blocks of 4611686018427387904 token": func(g *paged.Geometry) { g.BlockTokens = 1 << 62 },
		"0 heads":                             func(g *paged.Geometry) { g.Heads = 0 },
		"of 9223372036854775807 elements":     func(g *paged.Geometry) { g.HeadSize = 1<<63 - 1 },
		"elements of 4294967296 bytes":        func(g *paged.Geometry) { g.ElementSize = 1 << 32 },
		"2 heads; the layout":                 func(g *paged.Geometry) { g.Layout = paged.MLA },
		"a tensor of more than":               func(g *paged.Geometry) { g.Blocks, g.HeadSize = 1<<34, 1<<17 },
	} {
		g := small
		change(&g)
		require.ErrorIs(t, g.Validate(), fs.ErrInvalid)
		_, err := paged.New(g, nil)
		require.ErrorContains(t, err, text)
	}
	_, err := paged.New(small, newTensors(small, 1)[1:])
	require.ErrorContains(t, err, "1 tensors; 2 layers in the layout NL_X_TWO_NB_BS_NH_HS are 2")
	_, err = paged.New(small, [][]byte{make([]byte, 192), make([]byte, 191)})
	require.ErrorContains(t, err, "tensor 1 has 191 bytes, and its dimensions 192")
	require.Zero(t, paged.Layout("").Planes())
}

func TestCopiesDoNotAllocate(t *testing.T) {
	b, err := paged.New(small, newTensors(small, 1))
	require.NoError(t, err)
	slots := []int64{0, 1, 5, 6, -1, 11}
	chunk := make([]byte, small.ChunkBytes(len(slots), false))
	layer := make([]byte, small.ChunkBytes(len(slots), true))
	require.Zero(t, testing.AllocsPerRun(10, func() {
		if b.Gather(chunk, slots) != nil || b.Scatter(slots, chunk) != nil ||
			b.GatherLayer(layer, paged.KVT2D, 1, slots) != nil ||
			b.ScatterLayer(slots, 1, paged.KV2TD, layer) != nil {
			t.Fatal("refused")
		}
	}))
}

// FuzzCopy: any numbers are refused, or copied forth and back, and what has no slot stays.
func FuzzCopy(f *testing.F) {
	f.Add(uint8(0), int8(2), int8(3), int8(4), int8(2), int8(2), int8(2), int8(1), uint8(1), []byte{0, 1, 2, 255, 11})
	f.Add(uint8(1), int8(2), int8(3), int8(4), int8(2), int8(2), int8(2), int8(0), uint8(2), []byte{4, 5, 6, 7, 12})
	f.Add(uint8(6), int8(1), int8(3), int8(4), int8(1), int8(2), int8(2), int8(5), uint8(6), []byte{4})
	f.Fuzz(func(
		t *testing.T, layout uint8, layers, blocks, block, heads, head, element, layer int8, format uint8, at []byte,
	) {
		g := paged.Geometry{
			Layout: layouts[int(layout)%len(layouts)], Layers: int(layers),
			Blocks: int(blocks), BlockTokens: int(block),
			Heads: int(heads), HeadSize: int(head), ElementSize: int(element),
		}
		if g.Validate() != nil || g.Tensors()*g.TensorBytes() > 1<<20 || len(at) > 1000 {
			return
		}
		tensors := newTensors(g, 3)
		b, err := paged.New(g, tensors)
		require.NoError(t, err)
		slots := make([]int64, len(at))
		for i := range at {
			slots[i] = int64(int8(at[i]))
		}
		before := clone(tensors)
		chunk := make([]byte, g.ChunkBytes(len(slots), true))
		if b.GatherLayer(chunk, paged.Format(format), int(layer), slots) == nil {
			require.NoError(t, b.ScatterLayer(slots, int(layer), paged.Format(format), chunk))
		}
		chunk = make([]byte, g.ChunkBytes(len(slots), false))
		if err := b.Gather(chunk, slots); err == nil {
			require.NoError(t, b.Scatter(slots, chunk))
		} else {
			require.Greater(t, slices.Max(slots), int64(b.Slots()-1))
		}
		require.Equal(t, before, tensors)
	})
}
