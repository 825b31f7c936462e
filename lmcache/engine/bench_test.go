package engine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/kv/flow"
	"github.com/ringcache/ringcache/kv/paged"
	"github.com/ringcache/ringcache/lmcache/engine"
	"github.com/ringcache/ringcache/tier"
)

// slow is a level that takes a while for each object that it reads.
type slow struct {
	tier.Level
	each time.Duration
}

func (s *slow) Get(ctx context.Context, gets []tier.Get) {
	for i := range gets {
		time.Sleep(s.each)
		s.Level.Get(ctx, gets[i:i+1])
	}
}

// BenchmarkWindow loads 16 layers of 8 chunks from a level that takes a millisecond for each object, of which
// the store reads some at a time, while an engine takes 8 milliseconds for each layer. With a window of 1, no
// layer is loaded while another one is used.
//
//	go test -run - -bench Window ./lmcache/engine
func BenchmarkWindow(b *testing.B) {
	const layers, chunks, chunk = 16, 8, 16
	const use = 8 * time.Millisecond
	g := paged.Geometry{
		Layout: paged.FlashAttention, Layers: layers, Blocks: chunks,
		BlockTokens: chunk, Heads: 8, HeadSize: 128, ElementSize: 2,
	}
	for _, window := range []int{1, 2, 3, 4} {
		b.Run(fmt.Sprintf("window=%d", window), func(b *testing.B) {
			memory := tiertest.NewMap(tiertest.MapOptions{Name: "memory"})
			store, err := tier.Open(b.Context(), tier.Options{
				Memory: memory,
				Lower: []tier.Lower{
					{Level: &slow{tiertest.NewMap(tiertest.MapOptions{Name: "slow"}), time.Millisecond}},
				},
			})
			require.NoError(b, err)
			defer func() { require.NoError(b, store.Close()) }()
			tensors := make([][]byte, g.Tensors())
			for i := range tensors {
				tensors[i] = make([]byte, g.TensorBytes())
			}
			buffers, err := paged.New(g, tensors)
			require.NoError(b, err)
			e, err := engine.New(engine.Options{
				Store: store, Buffers: buffers, Layered: true, Window: window,
				Layout: kv.Layout{
					Model: "model", World: 1, ChunkTokens: chunk,
					Groups: []kv.Group{
						{
							Layers: layers, Slots: chunk, Hidden: 8 * 128, DType: "bfloat16",
							Planes: 2, BlockTokens: chunk,
						},
					},
				},
			})
			require.NoError(b, err)
			r := engine.Request{Tokens: upTo(chunks * chunk)}
			r.Slots = flow.AppendSlots(nil, []int64{3, 1, 7, 5, 0, 2, 6, 4}, chunk, len(r.Tokens))
			s, err := e.SaveLayers(b.Context(), r)
			require.NoError(b, err)
			for layer := range layers {
				require.NoError(b, s.Layer(layer))
			}
			_, err = s.Commit()
			require.NoError(b, err)
			for b.Loop() {
				b.StopTimer()
				_, err := store.Drain(b.Context())
				require.NoError(b, err)
				for o := range memory.List(b.Context(), "") {
					memory.Delete(b.Context(), []tier.Key{o.Key})
				}
				b.StartTimer()
				load, err := e.LoadLayers(b.Context(), r)
				require.NoError(b, err)
				for _, err := range load.Layers(b.Context()) {
					require.NoError(b, err)
					time.Sleep(use)
				}
			}
		})
	}
}
