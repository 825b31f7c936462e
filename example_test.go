package ringcache_test

import (
	"context"
	"fmt"

	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/serde"
)

// decode stands for the code that turns a photo into the tensors of an item. It
// writes them where they will stay: with mode SHM, into shared memory.
func decode(_ context.Context, b *mmcache.Builder) error {
	layout := &serde.Item{Modality: "image", Elems: []serde.Elem{{
		Key:  "pixel_values",
		Data: &serde.Tensor{DType: "float32", Shape: []int{3, 336, 336}},
	}}}
	if err := b.Layout(layout, nil); err != nil {
		return err
	}
	pixels := b.Tensor("pixel_values")
	fmt.Println("decoding into", len(pixels), "bytes")
	return nil
}

// Two requests use one photo. The photo is decoded once; the engine receives its
// data with the first request and a reference with the second.
func Example() {
	cache, err := mmcache.Open(mmcache.Options{Mode: "lru", Capacity: 64 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cache.Abandon() // ends what is still open

	request := func(ctx context.Context, id string) error {
		req, err := cache.Begin(ctx, id, mmcache.Want{Key: "photo", Bytes: 2 << 20})
		if err != nil {
			return err
		}
		defer req.Rollback() // does nothing after Commit
		if _, err := req.Item(ctx, "photo", decode); err != nil {
			return err
		}
		err = req.Commit(ctx, func(b mmcache.Batch) error {
			fmt.Println(id, "sends the data:", b.Items[0].Item() != nil)
			return nil
		})
		if err != nil {
			return err
		}
		req.Finish() // the engine has answered
		return nil
	}
	for _, id := range []string{"request-1", "request-2"} {
		if err := request(context.Background(), id); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// decoding into 1354752 bytes
	// request-1 sends the data: true
	// request-2 sends the data: false
}
