package chunks_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/ringcache/ringcache/blend"
	"github.com/ringcache/ringcache/blend/chunks"
	"github.com/ringcache/ringcache/blend/rope"
	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/memory"
)

// A chunk that is stored is found wherever it stands in a prompt.
func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	level, err := memory.Open(memory.Options{Name: "example", Dir: dir, Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer level.Remove()
	store, err := tier.Open(ctx, tier.Options{Memory: level})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	shape := blend.Shape{Layers: 2, Heads: 1, HeadDim: 4, DType: rope.F16}
	library, err := chunks.Open(ctx, chunks.Options{
		Store: store, Space: "model", Shape: shape, Scheme: kv.Scheme{ChunkTokens: 4},
	})
	if err != nil {
		log.Fatal(err)
	}
	computed, err := blend.New(shape, 4)
	if err != nil {
		log.Fatal(err)
	}
	if err := library.Put(ctx, []int64{11, 12, 13, 14}, blend.Chunk{KV: computed}); err != nil {
		log.Fatal(err)
	}
	cover, err := library.Find([]int64{1, 2, 11, 12, 13, 14, 3})
	if err != nil {
		log.Fatal(err)
	}
	r, err := library.Begin(ctx, "request-1", cover) // pins what is there
	if err != nil {
		log.Fatal(err)
	}
	defer r.Release()
	for _, m := range r.Cover {
		fmt.Println("tokens", m.Start, "to", m.End)
	}
	// Output: tokens 2 to 6
}
