package paged_test

import (
	"bytes"
	"fmt"
	"log"

	"github.com/ringcache/ringcache/kv/paged"
)

// The KV of two tokens, which lie in slots 5 and 2 of an engine's buffers, becomes a chunk, and goes to other slots.
func Example() {
	g := paged.Geometry{
		Layout: paged.FlashAttention, Layers: 2, Blocks: 4, BlockTokens: 2, Heads: 1, HeadSize: 4, ElementSize: 2,
	}
	var tensors [][]byte
	for range g.Tensors() {
		tensors = append(tensors, make([]byte, g.TensorBytes()))
	}
	buffers, err := paged.New(g, tensors)
	if err != nil {
		log.Fatal(err)
	}
	chunk := bytes.Repeat([]byte("KV"), g.ChunkBytes(2, false)/2)
	if err := buffers.Scatter([]int64{5, 2}, chunk); err != nil {
		log.Fatal(err)
	}
	again := make([]byte, len(chunk))
	if err := buffers.Gather(again, []int64{5, 2}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(chunk), "bytes in format", g.Layout.Whole(), "- equal:", bytes.Equal(chunk, again))
	// Output:
	// 64 bytes in format KV_2LTD - equal: true
}
