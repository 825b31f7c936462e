//go:build linux

package memory

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/shmring/memory"
	"github.com/ringcache/ringcache/tier"
)

// benchLevel is a level in shared memory, with all pages mapped.
func benchLevel(b *testing.B, size int64) *Level {
	b.Helper()
	l, err := Open(Options{Name: fmt.Sprintf("ringcache-bench-%d", os.Getpid()), Size: size, Owner: "bench"})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, l.Remove()) })
	_, err = l.Prepare(context.Background(), memory.Options{Prefault: true})
	require.NoError(b, err)
	return l
}

var benchSizes = []int{2 << 20, 34 << 20}

// BenchmarkCopy is what Put and Get are compared with: a copy into shared memory, and one out of it. The memory
// is 8 times the size, so that no cache has it.
func BenchmarkCopy(b *testing.B) {
	for _, way := range []string{"in", "out"} {
		for _, size := range benchSizes {
			b.Run(fmt.Sprintf("%s/%dMiB", way, size>>20), func(b *testing.B) {
				l := benchLevel(b, int64(8*size))
				other := make([]byte, size)
				clear(other)
				ring := l.seg.Ring()
				b.SetBytes(int64(size))
				for i := 0; b.Loop(); i++ {
					part := ring[i%8*size:][:size]
					if way == "in" {
						copy(part, other)
					} else {
						copy(other, part)
					}
				}
			})
		}
	}
}

func BenchmarkPut(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprintf("%dMiB", size>>20), func(b *testing.B) {
			l := benchLevel(b, int64(8*size))
			puts := []tier.Put{{Object: object("", "", size), Bytes: make([]byte, size)}}
			clear(puts[0].Bytes)
			b.SetBytes(int64(size))
			for i := 0; b.Loop(); i++ { // the old ones are evicted
				puts[0].Object.Name = fmt.Sprint(i)
				if l.Put(context.Background(), puts); puts[0].Err != nil {
					b.Fatal(puts[0].Err)
				}
			}
		})
	}
}

func BenchmarkGet(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprintf("%dMiB", size>>20), func(b *testing.B) {
			l := benchLevel(b, int64(8*size))
			for i := range 7 {
				require.NoError(b, put(l, object(fmt.Sprint(i), "", size)))
			}
			to := make([]byte, size)
			clear(to)
			b.SetBytes(int64(size))
			for i := 0; b.Loop(); i++ {
				gets := []tier.Get{{Key: key(fmt.Sprint(i % 7)), Into: func(tier.Object) ([]byte, error) { return to, nil }}}
				if l.Get(context.Background(), gets); gets[0].Err != nil {
					b.Fatal(gets[0].Err)
				}
			}
		})
	}
}

// BenchmarkLease is batches of 64 keys, as a client's request for a prompt has them.
func BenchmarkLease(b *testing.B) {
	const batch = 64
	names := make([]string, batch)
	objects := make([]tier.Object, batch)
	for i := range names {
		names[i] = fmt.Sprintf("%064x", i)
		objects[i] = object(names[i], "", 128<<10)
	}
	keys := keys(names...)
	fail := func(b *testing.B, placed []tier.Placed) {
		for _, p := range placed {
			if p.Err != nil {
				b.Fatal(p.Err)
			}
		}
	}
	b.Run("Pin+Unpin/64", func(b *testing.B) {
		l := benchLevel(b, 64<<20)
		for _, o := range objects {
			require.NoError(b, put(l, o))
		}
		x, err := l.Lease(context.Background(), tier.LeaseOptions{ID: "x"})
		require.NoError(b, err)
		for b.Loop() {
			fail(b, x.Pin(keys))
			x.Unpin(keys)
		}
	})
	b.Run("Lease+Pin+Release/64", func(b *testing.B) {
		l := benchLevel(b, 64<<20)
		for _, o := range objects {
			require.NoError(b, put(l, o))
		}
		for b.Loop() {
			x, err := l.Lease(context.Background(), tier.LeaseOptions{ID: "x"})
			if err != nil {
				b.Fatal(err)
			}
			fail(b, x.Pin(keys))
			x.Release()
		}
	})
	for _, others := range []int{0, 1 << 18} { // with the larger number, processors' caches have none of them
		b.Run(fmt.Sprintf("Lease+PinPrefix+Release/1000 of %d", others+1000), func(b *testing.B) {
			l, err := Open(Options{Name: fmt.Sprintf("ringcache-bench-%d", os.Getpid()), Size: 256 << 20, MaxObjects: 1 << 19, Owner: "bench"})
			require.NoError(b, err)
			b.Cleanup(func() { require.NoError(b, l.Remove()) })
			all := make([]tier.Key, 0, others+1000)
			for i := range cap(all) {
				o := object(fmt.Sprintf("%064x", i), "", 128)
				require.NoError(b, put(l, o))
				all = append(all, o.Key)
			}
			for i := 0; b.Loop(); i++ {
				x, err := l.Lease(context.Background(), tier.LeaseOptions{ID: "x"})
				if err != nil {
					b.Fatal(err)
				}
				from := i * 7919 % (others/1000 + 1) * 1000
				fail(b, x.PinPrefix(all[from:from+1000]))
				x.Release()
			}
		})
	}
	b.Run("Pin of misses/64", func(b *testing.B) {
		l := benchLevel(b, 64<<20)
		x, err := l.Lease(context.Background(), tier.LeaseOptions{ID: "x"})
		require.NoError(b, err)
		for b.Loop() {
			x.Pin(keys)
		}
	})
	b.Run("Reserve+Commit+Unpin/64", func(b *testing.B) {
		l := benchLevel(b, 64<<20)
		x, err := l.Lease(context.Background(), tier.LeaseOptions{ID: "x"})
		require.NoError(b, err)
		for i := 0; b.Loop(); i++ { // the old ones are evicted
			for j := range objects {
				objects[j].Space = fmt.Sprint(i)
				keys[j] = objects[j].Key
			}
			fail(b, x.Reserve(objects))
			for _, err := range x.Commit(keys) {
				if err != nil {
					b.Fatal(err)
				}
			}
			x.Unpin(keys)
		}
	})
	b.Run("Reserve+Commit of 24 MiB", func(b *testing.B) {
		l := benchLevel(b, 128<<20)
		x, err := l.Lease(context.Background(), tier.LeaseOptions{ID: "x"})
		require.NoError(b, err)
		for i := 0; b.Loop(); i++ {
			o := []tier.Object{object(fmt.Sprint(i), "", 24<<20)}
			fail(b, x.Reserve(o))
			if err := x.Commit([]tier.Key{o[0].Key})[0]; err != nil {
				b.Fatal(err)
			}
			x.Unpin([]tier.Key{o[0].Key})
		}
	})
}
