package upstream_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/lru"
	"github.com/ringcache/ringcache/internal/sentinel"
	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/lrusync/upstream"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
)

// The scenarios of upstream's tests/multimodal/test_cache.py;
// docs/testing.md maps them.

// item has one tensor of bytes for each size.
func item(sizes ...int) *serde.Item {
	it := &serde.Item{}
	for i, n := range sizes {
		it.Elems = append(it.Elems, serde.Elem{Key: fmt.Sprint("e", i), Data: &serde.Tensor{DType: "int8", Shape: []int{n}}})
	}
	return it
}

func sizeOf(t *testing.T, it *serde.Item) int64 {
	t.Helper()
	n, err := lrusync.ItemSize(it, lrusync.Python{})
	require.NoError(t, err)
	return n
}

const gb = 1 << 30 // that mm_processor_cache_gb counts

func TestUpstreamCacheItemSize(t *testing.T) {
	one := sizeOf(t, item(100))
	two := sizeOf(t, item(100, 110))
	four := two + sizeOf(t, item(120, 130)) // items of two modalities
	require.Equal(t, []int64{100, 210, 460}, []int64{one, two, four})

	o := lrusync.Options{Capacity: 2048 * gb}
	only, err := upstream.NewProcessorOnlyCache[string](o)
	require.NoError(t, err)
	s, err := upstream.NewSenderCache(o)
	require.NoError(t, err)
	l := upstream.NewLRUCache(o.Capacity, upstream.LRUOptions[int64]{})
	for _, n := range []int64{one, two, four} {
		require.NoError(t, l.Put("", n, n))
		require.Equal(t, n, l.Size(), "one after another under one key")

		only.Clear()
		_, _, err = only.GetAndUpdate("", "item", &upstream.Input{Size: n})
		require.NoError(t, err)
		_, size := only.Contents()
		require.Equal(t, n, size, "an item with its prompt updates")

		s.Clear()
		_, _, err = s.GetAndUpdate("", &upstream.Input{Size: n, Updates: make([]byte, 1000)})
		require.NoError(t, err)
		_, size = s.Contents()
		require.Equal(t, n, size, "the size alone")
	}
}

// Upstream's items have no bytes at all here; these have some, so that the
// caches overflow.
func TestUpstreamIPCEnableDisableConsistency(t *testing.T) {
	for looks := 1; looks <= 3; looks++ {
		t.Run(fmt.Sprint(looks), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(uint64(looks), 0))
			o := lrusync.Options{Capacity: gb / (1 << 20)}
			p := newPair(t, o)
			only, err := upstream.NewProcessorOnlyCache[int64](o)
			require.NoError(t, err)
			hits := 0
			for range 100 {
				i := rnd.IntN(16)
				key, size := fmt.Sprint("item", i), int64(o.Capacity)/8-int64(i)
				var sent, onlySent []bool
				for range looks {
					sent, onlySent = p.IsCached(key), only.IsCached(key)
				}
				require.Equal(t, onlySent, sent)
				f := with(key, size)
				var in *upstream.Input
				if !sent[0] {
					in = &upstream.Input{Size: size}
				}
				omit, _, err := p.GetAndUpdate(key, in)
				require.NoError(t, err)
				require.Equal(t, sent[0], omit)
				if omit {
					hits++
					f = without(key)
				}
				got, err := p.engine.GetAndUpdate([]lrusync.Feature[int64]{f})
				require.NoError(t, err)
				value := size
				if in == nil {
					value = 0 // must not be needed
				}
				got1, _, err := only.GetAndUpdate(key, value, in)
				require.NoError(t, err)
				require.Equal(t, []int64{size}, got)
				require.Equal(t, size, got1)
				p.requireEqual(t)
			}
			require.Greater(t, hits, 10)
			require.Less(t, hits, 90)
		})
	}
}

func TestUpstreamMMCacheMissRaisesAndRecovers(t *testing.T) {
	p := newPair(t, lrusync.Options{Capacity: 1 << 20})
	receive := func(f lrusync.Feature[int64]) ([]int64, error) {
		return p.engine.GetAndUpdate([]lrusync.Feature[int64]{f})
	}
	_, err := receive(without("hash"))
	requireMiss(t, err, "hash")

	in := &upstream.Input{Size: 10}
	omit, _, err := p.GetAndUpdate("hash", in)
	require.NoError(t, err)
	require.False(t, omit)
	omit, _, err = p.GetAndUpdate("hash", nil)
	require.NoError(t, err)
	require.True(t, omit, "the first request never arrived, the second has no data")
	_, err = receive(without("hash"))
	requireMiss(t, err, "hash")

	p.Invalidate("hash")
	require.Equal(t, []bool{false}, p.IsCached("hash"))
	_, _, err = p.GetAndUpdate("hash", nil)
	requireMiss(t, err, "hash")
	omit, _, err = p.GetAndUpdate("hash", in)
	require.NoError(t, err)
	require.False(t, omit)
	got, err := receive(with("hash", 10))
	require.NoError(t, err)
	require.Equal(t, []int64{10}, got)
	got, err = receive(without("hash"))
	require.NoError(t, err)
	require.Equal(t, []int64{10}, got)
	p.requireEqual(t)
}

func TestUpstreamMMCacheMissBatchesAllDriftedHashes(t *testing.T) {
	p := newPair(t, lrusync.Options{Capacity: 100})
	_, err := p.engine.GetAndUpdate([]lrusync.Feature[int64]{with("A", 1), without("B"), with("C", 1), without("D"), without("E")})
	requireMiss(t, err, "B", "D", "E")
	require.Equal(t, "Multi-modal items ['B', 'D', 'E'] are not in the receiver (P1) cache and no data was provided to recompute them "+
		"(P0/P1 cache drift); the request should be retried with the multi-modal data attached.", sentinel.UpstreamText(err))
	require.Equal(t, []string{"A", "C"}, keysOf(p.engine.Contents()))
}

func TestUpstreamCacheEvictionLRUCache(t *testing.T) {
	p := newPair(t, lrusync.Options{Capacity: 6})
	request := func(want []bool, items ...lrusync.Feature[int64]) {
		t.Helper()
		var keys []string
		for _, f := range items {
			keys = append(keys, f.Key)
		}
		cached := p.IsCached(keys...)
		require.Equal(t, want, cached)
		for _, k := range keys {
			p.Touch(k)
		}
		for i, f := range items {
			var in *upstream.Input
			if !cached[i] {
				in = &upstream.Input{Size: f.Size}
			}
			omit, _, err := p.GetAndUpdate(f.Key, in)
			require.NoError(t, err)
			if omit {
				items[i] = without(f.Key)
			}
		}
		_, err := p.engine.GetAndUpdate(items)
		require.NoError(t, err)
		p.requireEqual(t)
	}
	request([]bool{false, false, false}, with("A", 2), with("B", 2), with("C", 2))
	require.Equal(t, []string{"A", "B", "C"}, keysOf(p.Contents()))
	request([]bool{false, false, true, true}, with("D", 1), with("E", 1), with("A", 2), with("C", 2))
	require.Equal(t, []string{"D", "E", "A", "C"}, keysOf(p.Contents()))
}

// Two LoRAs see one item under two identifiers; from 0.14 it is cached once.
func TestUpstreamProcessorCacheSharedAcrossLoRAs(t *testing.T) {
	first := lrusync.Feature[int64]{Key: "h", Identifier: "12345:h", HasData: true, Value: 7, Size: 7}
	second := lrusync.Feature[int64]{Key: "h", Identifier: "67890:h"}
	for _, g := range pycompat.Releases() {
		t.Run(g.Version, func(t *testing.T) {
			r, err := upstream.NewReceiverCache[int64](lrusync.Options{Capacity: 100, Generation: g})
			require.NoError(t, err)
			_, err = r.GetAndUpdate([]lrusync.Feature[int64]{first})
			require.NoError(t, err)
			got, err := r.GetAndUpdate([]lrusync.Feature[int64]{second})
			if !g.FeatureHash {
				requireMiss(t, err, "67890:h")
				return
			}
			require.NoError(t, err)
			require.Equal(t, []int64{7}, got)
			require.Equal(t, []string{"h"}, keysOf(r.Contents()))
		})
	}
}

func TestUpstreamOversizeIsServedUncached(t *testing.T) {
	for _, g := range pycompat.Releases() {
		t.Run(g.Version, func(t *testing.T) {
			p := newPair(t, lrusync.Options{Capacity: 10, Generation: g})
			only, err := upstream.NewProcessorOnlyCache[int64](lrusync.Options{Capacity: 10, Generation: g})
			require.NoError(t, err)
			omit, _, err := p.GetAndUpdate("big", &upstream.Input{Size: 11})
			_, err1 := p.engine.GetAndUpdate([]lrusync.Feature[int64]{with("big", 11)})
			v, _, err2 := only.GetAndUpdate("big", 11, &upstream.Input{Size: 11})
			for _, err := range []error{err, err1, err2} {
				if g.Cache.PutIfFits {
					require.NoError(t, err)
					continue
				}
				var large *lru.TooLargeError
				require.ErrorAs(t, err, &large)
				require.Equal(t, lru.TooLargeError{Key: "big", Size: 11, Capacity: 10}, *large)
				require.Equal(t, "value too large", sentinel.UpstreamText(err))
			}
			require.False(t, omit)
			require.Equal(t, []bool{false, false}, append(p.IsCached("big"), only.IsCached("big")...))
			require.Empty(t, keysOf(p.engine.Contents()))
			if g.Cache.PutIfFits {
				require.Equal(t, int64(11), v)
			}
		})
	}
}

func TestUpstreamFreshPayloadReplaces(t *testing.T) {
	for _, g := range pycompat.Releases() {
		t.Run(g.Version, func(t *testing.T) {
			r, err := upstream.NewReceiverCache[string](lrusync.Options{Capacity: 10, Generation: g})
			require.NoError(t, err)
			_, err = r.GetAndUpdate([]lrusync.Feature[string]{{Key: "k", HasData: true, Value: "old", Size: 3}})
			require.NoError(t, err)
			got, err := r.GetAndUpdate([]lrusync.Feature[string]{{Key: "k", HasData: true, Value: "fresh", Size: 5}})
			require.NoError(t, err)
			want, size := "old", int64(3)
			if g.Cache.FreshWins {
				want, size = "fresh", 5
			}
			require.Equal(t, []string{want}, got)
			got, err = r.GetAndUpdate([]lrusync.Feature[string]{{Key: "k"}})
			require.NoError(t, err)
			require.Equal(t, []string{want}, got)
			contents, _ := r.Contents()
			require.Equal(t, []lrusync.KeySize{{Key: "k", Size: size}}, contents)
		})
	}
}

// TestInvalidateLeavesTheProcessorOnlyCache: only a cache that an engine mirrors can have lost
// its mirror (BaseMultiModalProcessorCache.invalidate in vllm/multimodal/cache/base.py, 0.28 on).
func TestInvalidateLeavesTheProcessorOnlyCache(t *testing.T) {
	c, err := upstream.NewProcessorOnlyCache[int64](lrusync.Options{Capacity: 30})
	require.NoError(t, err)
	_, _, err = c.GetAndUpdate("b", 7, &upstream.Input{Size: 3})
	require.NoError(t, err)
	c.Invalidate("b")
	require.Equal(t, []bool{true}, c.IsCached("b"))
	contents, size := c.Contents()
	require.Equal(t, []lrusync.KeySize{{Key: "b", Size: 3}}, contents)
	require.EqualValues(t, 3, size)
	require.NoError(t, c.CheckStructure())
}
