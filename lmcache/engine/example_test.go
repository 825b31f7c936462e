package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"log"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/kv/paged"
	"github.com/ringcache/ringcache/lmcache/engine"
	"github.com/ringcache/ringcache/tier"
)

// Example is the way of a request: its tokens are looked up, the engine allocates blocks, what is there is loaded, the rest
// is computed and saved, and the request ends.
func Example() {
	ctx := context.Background()
	store, err := tier.Open(ctx, tier.Options{Memory: tiertest.NewMap(tiertest.MapOptions{})}) // memory.Open in a program
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	// The engine's buffers: 2 layers of 16 blocks of 4 tokens, with 2 heads of 8 elements of 2 bytes.
	geometry := paged.Geometry{Layout: paged.FlashAttention, Layers: 2, Blocks: 16, BlockTokens: 4, Heads: 2, HeadSize: 8, ElementSize: 2}
	layers := [][]byte{make([]byte, geometry.TensorBytes()), make([]byte, geometry.TensorBytes())}
	buffers, err := paged.New(geometry, layers)
	if err != nil {
		log.Fatal(err)
	}
	e, err := engine.New(engine.Options{
		Store: store, Buffers: buffers,
		Layout: kv.Layout{
			Model: "org/model", World: 1, ChunkTokens: 8,
			Groups: []kv.Group{{Layers: 2, Slots: 8, Hidden: 16, DType: "bfloat16", Planes: 2, BlockTokens: 4}},
		},
	})
	if err != nil {
		log.Fatal(err)
	}

	serve := func(id string, tokens []int64, blocks []int64) {
		// Look-up, beside the scheduler: what is found stays until the request ends.
		hold, err := store.Lease(ctx, tier.LeaseOptions{ID: id})
		if err != nil {
			log.Fatal(err)
		}
		defer hold.Release() // finish
		r := engine.Request{Tokens: tokens}
		found, err := e.Lookup(ctx, r, hold)
		if err != nil {
			log.Fatal(err)
		}
		// Allocation: the scheduler chooses blocks, and the worker is told the slots.
		r.Slots, err = paged.AppendSlots(nil, blocks, geometry.BlockTokens, 0, len(tokens))
		if err != nil {
			log.Fatal(err)
		}
		loaded, err := e.Retrieve(ctx, r)
		if err != nil {
			log.Fatal(err)
		}
		// The engine computes what was not loaded, and saves that.
		for i, token := range tokens[loaded:] {
			kv := bytes.Repeat([]byte{byte(token)}, geometry.ChunkBytes(1, false))
			if err := buffers.Scatter(r.Slots[loaded+i:][:1], kv); err != nil {
				log.Fatal(err)
			}
		}
		r.Skip = loaded
		stored, err := e.Store(ctx, r)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %d tokens, %d found, %d loaded, %d stored\n", id, len(tokens), found, loaded, stored.New)
	}
	prompt := []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}
	serve("first", prompt, []int64{3, 1, 7, 0, 5})
	serve("second", append(prompt[:16:16], 20, 21, 22, 23, 24, 25, 26, 27), []int64{10, 11, 2, 9, 8, 4})
	// Output:
	// first: 17 tokens, 0 found, 0 loaded, 16 stored
	// second: 24 tokens, 16 found, 16 loaded, 8 stored
}
