package mmcache_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/mmcache"
)

// BenchmarkRequest takes a request for an item that is cached, which no engine reads,
// through the first steps of its life, and then to the last: the difference of two lines
// is what a step costs. In mode none the item is made again each time.
func BenchmarkRequest(b *testing.B) {
	const n = 4096
	for _, steps := range []struct {
		name string
		run  func(b *testing.B, r *mmcache.Request)
	}{
		{"Begin", func(*testing.B, *mmcache.Request) {}},
		{"Begin+Item", item},
		{"Begin+Item+Commit+Finish", func(b *testing.B, r *mmcache.Request) {
			item(b, r)
			if err := r.Commit(ctx, sent); err != nil {
				b.Fatal(err)
			}
			r.Finish()
		}},
	} {
		for _, m := range modes {
			b.Run(steps.name+"/"+m, func(b *testing.B) {
				c := openCache(b, mmcache.Options{Mode: m, Capacity: 1 << 20})
				first, _ := run(b, c, n, "a")
				first.Finish()
				wants := want(n, "a")
				b.ReportAllocs()
				for b.Loop() {
					r, err := c.Begin(ctx, "r", wants...)
					if err != nil {
						b.Fatal(err)
					}
					steps.run(b, r)
					r.Rollback() // does nothing after Commit
				}
				require.Equal(b, m != "none", c.Stats().Hits > 0)
			})
		}
	}
}

var produceA = produceItem("a", 4096)

func item(b *testing.B, r *mmcache.Request) {
	if _, err := r.Item(ctx, "a", produceA); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkMiss makes items that are not cached, for one request each.
func BenchmarkMiss(b *testing.B) {
	for _, n := range []int{4 << 10, 64 << 10} {
		b.Run(strconv.Itoa(n>>10)+" KiB", func(b *testing.B) { benchmarkMiss(b, n) })
	}
}

func benchmarkMiss(b *testing.B, n int) {
	for _, m := range modes {
		b.Run(m, func(b *testing.B) {
			c := openCache(b, mmcache.Options{Mode: m, Capacity: 16 << 20})
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				key := strconv.Itoa(i)
				r, err := c.Begin(ctx, "r", want(n, key)...)
				if err == nil {
					_, err = r.Item(ctx, key, produceItem(key, n))
				}
				if err == nil {
					err = r.Commit(ctx, sent)
				}
				if err != nil {
					b.Fatal(err)
				}
				r.Finish()
			}
			require.Zero(b, c.Stats().Hits)
		})
	}
}
