package engine_test

import (
	"context"
	"fmt"
	"log"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/engine/enginetest"
	"github.com/ringcache/ringcache/engine/zmq"
	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/serde"
)

// A frontend with an engine that somebody else starts; here it is the stand-in of
// package enginetest.
func Example() {
	ctx := context.Background()
	// The cache comes first: in mode shm the engine's workers attach to its segment.
	cache, err := mmcache.Open(mmcache.Options{Mode: "lru", Capacity: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer cache.Abandon() // whatever is open

	imageToken := uint32(4)
	client, err := engine.New(engine.Options{
		Transport: zmq.Transport{},
		Cache:     cache,
		Model: engine.Model{ // what requests are verified against
			VocabSize: 256,
			Modalities: map[string]engine.Modality{"image": {
				Elems: []engine.ElemSpec{{Key: "pixel_values", DType: "uint8", Shape: []int{-1, 12}}},
				Tokens: func(it *serde.Item) (int, error) {
					e, _ := it.Lookup("pixel_values")
					return e.Data.(*serde.Tensor).Shape[0], nil
				},
				Placeholder: &imageToken,
			}},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	up := make(chan *enginetest.Engine, 1)
	go func() {
		e, err := enginetest.Start(ctx, enginetest.Options{Handshake: client.Address().Handshake, Mirror: 1 << 20})
		if err != nil {
			log.Fatal(err)
		}
		up <- e
	}()
	defer func() { (<-up).Kill() }()
	if err := client.Start(ctx); err != nil { // and again after client.Gone
		log.Fatal(err)
	}

	// An image of two rows, made when nobody has made it before.
	items, err := cache.Begin(ctx, "request-1", mmcache.Want{Key: "cat", Bytes: 1000})
	if err != nil {
		log.Fatal(err)
	}
	defer items.Rollback() // does nothing once Generate has succeeded
	_, err = items.Item(ctx, "cat", func(_ context.Context, b *mmcache.Builder) error {
		layout := &serde.Item{Elems: []serde.Elem{{Key: "pixel_values", Data: &serde.Tensor{DType: "uint8", Shape: []int{2, 12}}}}}
		if err := b.Layout(layout, nil); err != nil {
			return err
		}
		copy(b.Tensor("pixel_values"), "the pixels of a cat.....")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}

	stream, err := client.Generate(ctx, engine.Request{
		ID: "request-1", Prompt: []uint32{1, 4, 4, 9}, Params: map[string]any{"max_tokens": 3},
		Items: items, Placeholders: []engine.Placeholder{{Offset: 1, Length: 2}},
	})
	if err != nil {
		log.Fatal(err)
	}
	for out, err := range stream.Outputs() {
		if err != nil {
			log.Fatal(err) // errors.Is(err, engine.ErrDead): start the engine again
		}
		fmt.Print(len(out.TokenIDs), " token")
		if out.FinishReason != nil {
			fmt.Print(", ", out.FinishReason)
		}
		fmt.Println()
	}
	// Output:
	// 1 token
	// 1 token
	// 1 token, length
}
