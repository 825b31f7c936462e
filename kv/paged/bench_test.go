package paged_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/kv/flow"
	"github.com/ringcache/ringcache/kv/paged"
)

// BenchmarkCopy moves chunks of 256 tokens of a model with 8 heads of 128 bfloat16 elements in 16 layers, 16
// MiB each, between chunks and blocks of 16 tokens that are anywhere. In turn it copies as many bytes with
// copy, from a whole piece of each tensor, so that both meet the same machine, and reports the best of each.
// Everything is far larger than the caches of a processor. "blocks" are the same bytes by copy, a block of a
// layer and plane at a time, from anywhere: Go's copy writes pieces from 1 MiB on past the caches, which
// nearly doubles its speed, and no block is so large.
//
//	go test -run - -bench Copy ./kv/paged
func BenchmarkCopy(b *testing.B) {
	for _, layout := range []paged.Layout{
		paged.FlashAttention, paged.FlashInfer, paged.AllLayersOfBlock,
		paged.FlashAttentionHND, paged.PackedHND, paged.MLA,
	} {
		g := paged.Geometry{
			Layout: layout, Layers: 16, Blocks: 256, BlockTokens: 16, Heads: 8, HeadSize: 128, ElementSize: 2,
		}
		switch layout {
		case paged.MLA:
			g.Heads, g.HeadSize, g.Layers = 1, 576, 60
		case paged.PackedHND:
			g.HeadSize = 256
		}
		b.Run(string(layout), func(b *testing.B) { benchmarkCopy(b, g) })
	}
}

func benchmarkCopy(b *testing.B, g paged.Geometry) {
	const tokens = 256
	buffers, err := paged.New(g, newTensors(g, 1))
	require.NoError(b, err)
	var blocks []int64
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // it chooses where blocks are
	for _, i := range rng.Perm(g.Blocks) {
		blocks = append(blocks, int64(i))
	}
	chunks := g.Blocks * g.BlockTokens / tokens
	all, slots := newBytes(chunks, g.ChunkBytes(tokens, false)), make([][]int64, chunks)
	for i := range all {
		slots[i] = flow.AppendSlots(nil, blocks[i*tokens/g.BlockTokens:], g.BlockTokens, tokens)
	}
	plain, other := newBytes(chunks*g.Layers, len(all[0])/g.Layers), newBytes(chunks, len(all[0]))
	part, block := g.ChunkBytes(tokens, true), g.ChunkBytes(g.BlockTokens, true)/g.Layout.Planes()
	byLayer := func(do func(layer int, chunk []byte) error) func(i int) error {
		return func(i int) error {
			for l := range g.Layers {
				if err := do(l, all[i][l*part:][:part]); err != nil {
					return err
				}
			}
			return nil
		}
	}
	format := paged.KVT2D
	if g.Layout.Planes() == 1 {
		format = paged.KVMLA
	}
	var at int
	ways := []struct {
		name string
		do   func(i int) error
		took []time.Duration
	}{
		{name: "memcpy", do: func(i int) error {
			for l := range g.Layers {
				copy(other[i][l*part:], plain[i*g.Layers+l])
			}
			return nil
		}},
		{name: "blocks", do: func(i int) error {
			for l := range g.Layers {
				for from := 0; from < part; from += block {
					copy(other[i][l*part+from:][:block], plain[rng.IntN(chunks)*g.Layers+l][from:])
				}
			}
			return nil
		}},
		{name: "gather", do: func(i int) error { return buffers.Gather(all[i], slots[i]) }},
		{name: "scatter", do: func(i int) error { return buffers.Scatter(slots[i], all[i]) }},
		{name: "gather-layers", do: byLayer(func(l int, chunk []byte) error {
			return buffers.GatherLayer(chunk, format, l, slots[at])
		})},
		{name: "scatter-layers", do: byLayer(func(l int, chunk []byte) error {
			return buffers.ScatterLayer(slots[at], l, format, chunk)
		})},
	}
	for at = 0; b.Loop(); at = (at + 1) % chunks {
		for i := range ways {
			begin := time.Now()
			if err := ways[i].do(at); err != nil {
				b.Fatal(err)
			}
			ways[i].took = append(ways[i].took, time.Since(begin))
		}
	}
	best := func(i int) float64 { return float64(slices.Min(ways[i].took).Nanoseconds()) }
	for i := range ways {
		b.ReportMetric(float64(len(all[0]))/best(i), ways[i].name+"-GB/s")
		if i > 0 {
			b.ReportMetric(best(0)/best(i), ways[i].name+"/memcpy")
		}
		if i > 1 {
			b.ReportMetric(best(1)/best(i), ways[i].name+"/blocks")
		}
	}
}

// newBytes returns memory that has pages already.
func newBytes(n, size int) [][]byte {
	out := make([][]byte, n)
	for i := range out {
		out[i] = make([]byte, size)
		for j := 0; j < size; j += 4096 {
			out[i][j] = 1
		}
	}
	return out
}
