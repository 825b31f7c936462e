package mmcache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/serde"
)

// makePhoto stands for what decodes an image: it fills the tensor where it will
// stay.
func makePhoto(_ context.Context, b *mmcache.Builder) error {
	fmt.Println("decoding")
	err := b.Layout(&serde.Item{Modality: "image", Elems: []serde.Elem{{
		Key:  "pixel_values",
		Data: &serde.Tensor{DType: "uint8", Shape: []int{4, 4, 3}},
	}}}, []byte("<image>*16"))
	if err != nil {
		return err
	}
	copy(b.Tensor("pixel_values"), bytes.Repeat([]byte{200}, 48))
	return nil
}

// The life of two requests for the same photo: the engine is sent it once, and
// then nothing in its place.
func Example() {
	ctx := context.Background()
	cache, err := mmcache.Open(mmcache.Options{Mode: "lru", Capacity: 1 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, id := range []string{"first", "second"} {
		err := func() error {
			req, err := cache.Begin(ctx, id, mmcache.Want{Key: "photo", Bytes: 100})
			if err != nil {
				return err
			}
			defer req.Rollback() // does nothing once committed
			item, err := req.Item(ctx, "photo", makePhoto)
			if err != nil {
				return err
			}
			fmt.Printf("%s: hit %t, prompt %s\n", id, item.Hit, item.Updates)
			err = req.Commit(ctx, func(b mmcache.Batch) error {
				fmt.Println("sent:", b.Items[0].Item() != nil) // put it into the engine's queue
				return nil
			})
			if err != nil {
				return err
			}
			req.Finish() // once the engine has answered
			return nil
		}()
		if err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(cache.Close())
	// Output:
	// decoding
	// first: hit false, prompt <image>*16
	// sent: true
	// second: hit true, prompt <image>*16
	// sent: false
	// <nil>
}

// With two API servers vLLM silently runs another cache than the configured one.
func ExampleConfig_Options() {
	c := mmcache.DefaultConfig()
	c.CacheType, c.APIServers = "shm", 2
	_, err := c.Options()
	fmt.Println(errors.Is(err, fs.ErrInvalid), err)
	c.AllowFallback = true
	o, err := c.Options()
	fmt.Println(o.Mode, err)
	// Output:
	// true mmcache: invalid argument: cache type shm is configured, but vLLM silently uses processor_only, since there are 2 API servers: change that, or set AllowFallback to do as vLLM
	// processor_only <nil>
}

// The engine was restarted and has lost the photo that the frontend takes it to
// have: the request is sent again, and its client does not notice.
func ExampleRequest_Missed() {
	ctx := context.Background()
	o := lrusync.Options{Capacity: 1 << 20}
	cache, err := mmcache.OpenMirrored(mmcache.Options{Capacity: o.Capacity})
	if err != nil {
		fmt.Println(err)
		return
	}
	var engine *lrusync.Receiver[*serde.Item]
	var answer lrusync.Result[*serde.Item]
	send := func(b mmcache.Batch) error {
		var features []lrusync.Feature[*serde.Item]
		for _, w := range b.Items {
			f := lrusync.Feature[*serde.Item]{Key: w.Key, HasData: w.Item() != nil, Value: w.Item()}
			if f.HasData {
				if f.Size, err = lrusync.ItemSize(w.Item(), lrusync.Python{}); err != nil {
					return err
				}
			}
			features = append(features, f)
			fmt.Println("sent:", f.HasData)
		}
		answer, err = engine.Receive(b.Envelope, features)
		return err
	}
	for range 2 {
		if engine, err = lrusync.NewReceiver[*serde.Item](o); err != nil { // anew for each request
			fmt.Println(err)
			return
		}
		req, err := cache.Begin(ctx, "request", mmcache.Want{Key: "photo", Bytes: 100})
		if err != nil {
			fmt.Println(err)
			return
		}
		if _, err := req.Item(ctx, "photo", makePhoto); err != nil {
			fmt.Println(err)
		}
		if err := req.Commit(ctx, send); err != nil {
			fmt.Println(err)
		}
		if answer.Drift != nil {
			fmt.Println("repaired:", cache.Repair(*answer.Drift))
		}
		if answer.Missing != nil {
			fmt.Println("the engine misses", answer.Missing)
			if err := req.Missed(ctx, answer.Missing, send); err != nil {
				fmt.Println(err)
			}
		}
		fmt.Println("the engine has it:", answer.Values[0] != nil)
		req.Finish()
	}
	fmt.Println(cache.Close())
	// Output:
	// decoding
	// sent: true
	// the engine has it: true
	// sent: false
	// repaired: true
	// the engine misses [photo]
	// decoding
	// sent: true
	// the engine has it: true
	// <nil>
}

// A server that ends: Shutdown waits for the requests that are open, as long as its
// context lasts, and Holders lists them. Abandon, deferred, sees to it that nothing
// is left in /dev/shm, whatever happened.
func ExampleCache_Shutdown() {
	ctx := context.Background()
	cache, err := mmcache.OpenShared(mmcache.Options{Capacity: 1 << 20, Shared: mmcache.SharedOptions{Readers: 1, Name: fmt.Sprint("example-", os.Getpid())}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cache.Abandon() // does nothing after Shutdown
	req, err := cache.Begin(ctx, "request-1", mmcache.Want{Key: "photo", Bytes: 100})
	if err != nil {
		fmt.Println(err)
		return
	}
	impatient, cancel := context.WithCancel(ctx)
	cancel()
	err = cache.Shutdown(impatient)
	fmt.Println(errors.Is(err, context.Canceled))
	for _, h := range cache.Holders() {
		fmt.Println("open:", h.ID, h.State)
	}
	_, err = cache.Begin(ctx, "request-2")
	fmt.Println(errors.Is(err, fs.ErrClosed))
	req.Rollback()
	fmt.Println(cache.Shutdown(ctx))
	// Output:
	// true
	// open: request-1 begun
	// true
	// <nil>
}
