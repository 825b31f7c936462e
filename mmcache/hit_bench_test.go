package mmcache_test

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/serde"
)

// BenchmarkHit takes requests for items that are cached in mode shm through all of their
// life, and has the address items encoded. The metric store-ns/op is the time of the same in the
// store alone, in the same run by turns, and x-store is how many times that a request takes.
func BenchmarkHit(b *testing.B) {
	for _, n := range []int{1, 4} {
		b.Run(fmt.Sprintf("%d items", n), func(b *testing.B) {
			hit, repeat := hits(b, n)
			const round = 64
			var took time.Duration
			rounds := 0
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				hit("r")
				if i%round != 0 {
					continue
				}
				b.StopTimer()
				start := time.Now()
				for range round {
					repeat("r")
				}
				took += time.Since(start)
				rounds++
				b.StartTimer()
			}
			store := float64(took.Nanoseconds()) / float64(rounds*round)
			b.ReportMetric(store, "store-ns/op")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/store, "x-store")
		})
	}
}

// BenchmarkHitParallel takes the same requests, in two modes and without the encoding, from
// several goroutines, each with an item of its own: ns/op is of all together.
func BenchmarkHitParallel(b *testing.B) {
	for _, mode := range []string{"shm", "processor_only"} {
		for _, n := range []int{1, 2, 4} {
			b.Run(fmt.Sprintf("%s/%d goroutines", mode, n), func(b *testing.B) {
				c, keys := hitCache(b, mode, n)
				var wg sync.WaitGroup
				b.ReportAllocs()
				b.ResetTimer()
				for g := range n {
					hit := cacheHit(b, c, keys[g:g+1], sent)
					wg.Go(func() {
						id := fmt.Sprint("r", g)
						for range (b.N + g) / n {
							hit(id)
						}
					})
				}
				wg.Wait()
			})
		}
	}
}

// hits returns a request for n cached items of a cache, and the same of a store.
func hits(t testing.TB, n int) (hit, repeat func(id string)) {
	c, keys := hitCache(t, "shm", n)
	return cacheHit(t, c, keys, encoder()), storeHit(t, keys, true)
}

const hitBytes = 4 << 10

// hitCache returns a cache that has n items.
func hitCache(t testing.TB, mode string, n int) (c mmcache.Cache, keys []string) {
	c = openCache(t, mmcache.Options{Mode: mode, Capacity: 1 << 20})
	for i := range n {
		keys = append(keys, fmt.Sprint("key ", i))
	}
	first, _ := run(t, c, hitBytes, keys...)
	first.Finish()
	return c, keys
}

// cacheHit returns a request for cached items, of a cache.
func cacheHit(t testing.TB, c mmcache.Cache, keys []string, send func(mmcache.Batch) error) func(id string) {
	wants := want(hitBytes, keys...)
	produce := mustNotProduce(t)
	return func(id string) {
		r, err := c.Begin(ctx, id, wants...)
		if err != nil {
			t.Error(err)
			return
		}
		for _, k := range keys {
			if _, err = r.Item(ctx, k, produce); err != nil {
				t.Error(err)
			}
		}
		if err = r.Commit(ctx, send); err != nil {
			t.Error(err)
		}
		r.Finish()
	}
}

// encoder returns a send that encodes the address items.
func encoder() func(mmcache.Batch) error {
	buf := make([]byte, 0, 256)
	return func(b mmcache.Batch) (err error) {
		for i := range b.Items {
			if buf, err = b.Items[i].AppendAddress(buf[:0]); err != nil {
				return err
			}
		}
		return nil
	}
}

// storeHit returns a request for the same, of a store. With encode it has handles of its
// own, which it encodes; else it takes the steps of a cache.
func storeHit(t testing.TB, keys []string, encode bool) func(id string) {
	p, err := objstore.CreatePool(objstore.Options{
		Name: fmt.Sprint("store", os.Getpid()), Dir: segmentDir(t), RingSize: 1 << 20, MaxObjectSize: 1 << 20, Readers: 1,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.CheckStructure()); require.NoError(t, p.Close()) })
	maker, err := p.Begin("maker")
	require.NoError(t, err)
	it := layout(hitBytes)
	it.Elems[0].Data.(*serde.Tensor).Data = content("key", hitBytes)
	for _, k := range keys {
		_, err := maker.Put(k, it, objstore.PutOptions{})
		require.NoError(t, err)
	}
	maker.Rollback()
	use := func(r objstore.Request, key string) error {
		h, _, err := r.Keep(key)
		if err != nil {
			return err
		}
		return r.SetUses(h, 1)
	}
	if encode {
		buf := make([]byte, 0, 256)
		use = func(r objstore.Request, key string) error {
			h, err := r.Lookup(key)
			if err != nil {
				return err
			}
			buf, err = serde.AppendAddress(buf[:0], h, "image", serde.Options{})
			return err
		}
	}
	return func(id string) {
		r, err := p.Begin(id)
		if err != nil {
			t.Error(err)
			return
		}
		for _, k := range keys {
			if err := use(r, k); err != nil {
				t.Error(err)
			}
		}
		if err := r.Commit(); err != nil {
			t.Error(err)
		}
		r.Finish()
	}
}
