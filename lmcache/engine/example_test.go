package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"log"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/kv/flow"
	"github.com/ringcache/ringcache/kv/paged"
	"github.com/ringcache/ringcache/lmcache/engine"
	"github.com/ringcache/ringcache/tier"
)

// Example is the way of two requests whose prompts have the same beginning, with blocks of 4 tokens and
// chunks of 8. Package flow decides what is loaded and saved, and the engine does it.
func Example() {
	ctx := context.Background()
	// A program has memory.Open in place of this map.
	store, err := tier.Open(ctx, tier.Options{Memory: tiertest.NewMap(tiertest.MapOptions{})})
	check(err)
	defer store.Close()

	// The worker's buffers: 2 layers of 16 blocks, with 2 heads of 8 elements of 2 bytes.
	geometry := paged.Geometry{
		Layout: paged.FlashAttention, Layers: 2, Blocks: 16,
		BlockTokens: 4, Heads: 2, HeadSize: 8, ElementSize: 2,
	}
	buffers, err := paged.New(geometry,
		[][]byte{make([]byte, geometry.TensorBytes()), make([]byte, geometry.TensorBytes())})
	check(err)
	e, err := engine.New(engine.Options{
		Store: store, Buffers: buffers,
		Layout: kv.Layout{
			Model: "org/model", World: 1, ChunkTokens: 8,
			Groups: []kv.Group{{Layers: 2, Slots: 8, Hidden: 16, DType: "bfloat16", Planes: 2, BlockTokens: 4}},
		},
	})
	check(err)

	// The look-up of a request pins what it finds, until the request ends.
	held := map[string]*tier.StoreLease{}
	lookup := func(id string, tokens []int64, _ string) (int, error) {
		lease, err := store.Lease(ctx, tier.LeaseOptions{ID: id})
		if err != nil {
			return 0, err
		}
		held[id] = lease
		return e.Lookup(ctx, engine.Request{Tokens: tokens}, lease)
	}
	scheduler, err := flow.NewScheduler(
		flow.Options{BlockTokens: 4, ChunkTokens: 8, DiscardPartialChunks: true},
		lookup)
	check(err)

	serve := func(id string, tokens, blocks []int64) {
		r := flow.Request{ID: id, Tokens: tokens, PromptTokens: len(tokens)}
		found, err := scheduler.Matched(r, 0) // tokens and look-up
		check(err)
		check(scheduler.Allocated(r, found)) // allocation
		metas, err := scheduler.Build([]flow.Scheduled{
			{ID: id, Tokens: tokens, Computed: found, Count: len(tokens) - found,
				Blocks: blocks}}, nil)
		check(err)
		loaded, stored, slots := 0, engine.Stored{}, flow.AppendSlots(nil, blocks, 4, len(tokens))
		for _, m := range metas {
			if t, ok := m.ToLoad(8); ok {
				loaded, err = e.Retrieve(ctx, engine.Request{Tokens: t.Tokens, Slots: t.Slots, Skip: t.Skip})
				check(err)
			}
			for i, token := range tokens[loaded:] { // the model runs
				check(buffers.Scatter(slots[loaded+i:][:1],
					bytes.Repeat([]byte{byte(token)}, geometry.ChunkBytes(1, false))))
			}
			if t, ok := m.ToSave(8); ok {
				stored, err = e.Store(ctx, engine.Request{Tokens: t.Tokens, Slots: t.Slots, Skip: t.Skip})
				check(err)
			}
		}
		scheduler.Finish(id)
		held[id].Release()
		fmt.Printf("%s: %d tokens, %d loaded, %d stored\n", id, len(tokens), loaded, stored.New)
	}
	prompt := []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	serve("first", append(prompt[:16:16], 17), []int64{3, 1, 7, 0, 5})
	serve("second", append(prompt[:16:16], 20, 21, 22, 23, 24, 25, 26, 27), []int64{10, 11, 2, 9, 8, 4})
	// Output:
	// first: 17 tokens, 0 loaded, 16 stored
	// second: 24 tokens, 16 loaded, 8 stored
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
