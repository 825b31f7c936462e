package lrusync_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/sentinel"
	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
)

// The scenarios of upstream's tests/multimodal/test_cache.py;
// docs/testing.md maps them.

// without is a feature that is named only, with one that carries a value which is
// its own size.
func without(key string) lrusync.Feature[int64] { return lrusync.Feature[int64]{Key: key} }

func with(key string, size int64) lrusync.Feature[int64] {
	return lrusync.Feature[int64]{Key: key, Has: true, Value: size, Size: size}
}

func keysOf(contents []lrusync.KeySize, _ int64) (keys []string) {
	for _, k := range contents {
		keys = append(keys, k.Key)
	}
	return keys
}

func sizeOf(t *testing.T, it *serde.Item) int64 {
	t.Helper()
	n, err := lrusync.ItemSize(it, lrusync.Python{})
	require.NoError(t, err)
	return n
}

func TestUpstreamCacheItemSize(t *testing.T) {
	one := sizeOf(t, item(zeros("int8", 100)))
	two := sizeOf(t, item(zeros("int8", 100), zeros("int8", 110)))
	four := two + sizeOf(t, item(zeros("int8", 120), zeros("int8", 130))) // items of two modalities
	require.Equal(t, []int64{100, 210, 460}, []int64{one, two, four})

	o := lrusync.Options{Capacity: lrusync.CapacityGB(2048)}
	only, err := lrusync.NewProcessorOnly[string](o)
	require.NoError(t, err)
	s, err := lrusync.NewSender(o)
	require.NoError(t, err)
	l := newSized(o.Capacity, lrusync.LRUOptions[int64]{})
	for _, n := range []int64{one, two, four} {
		require.NoError(t, l.put("", n))
		require.Equal(t, n, l.Size(), "one after another under one key")

		only.Clear()
		_, _, err = only.Update("", "item", &lrusync.Input{Size: n})
		require.NoError(t, err)
		_, size := only.Contents()
		require.Equal(t, n, size, "an item with its prompt updates")

		s.Clear()
		_, _, err = s.Update("", &lrusync.Input{Size: n, Updates: make([]byte, 1000)})
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
			o := lrusync.Options{Capacity: lrusync.CapacityGB(1. / (1 << 20))}
			p := newPair(t, o)
			only, err := lrusync.NewProcessorOnly[int64](o)
			require.NoError(t, err)
			hits := 0
			for range 100 {
				i := rnd.IntN(16)
				key, size := fmt.Sprint("item", i), int64(o.Capacity)/8-int64(i)
				var sent, onlySent []bool
				for range looks {
					sent, onlySent = p.Cached(key), only.Cached(key)
				}
				require.Equal(t, onlySent, sent)
				f := with(key, size)
				var in *lrusync.Input
				if !sent[0] {
					in = &lrusync.Input{Size: size}
				}
				omit, _, err := p.Update(key, in)
				require.NoError(t, err)
				require.Equal(t, sent[0], omit)
				if omit {
					hits++
					f = without(key)
				}
				got, err := p.r.Features([]lrusync.Feature[int64]{f})
				require.NoError(t, err)
				value := size
				if in == nil {
					value = 0 // must not be needed
				}
				got1, _, err := only.Update(key, value, in)
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
	receive := func(f lrusync.Feature[int64]) ([]int64, error) { return p.r.Features([]lrusync.Feature[int64]{f}) }
	miss := func(err error) {
		t.Helper()
		var e *lrusync.MissError
		require.ErrorAs(t, err, &e)
		require.Equal(t, []string{"hash"}, e.Keys)
	}
	_, err := receive(without("hash"))
	miss(err)

	in := &lrusync.Input{Size: 10}
	omit, _, err := p.Update("hash", in)
	require.NoError(t, err)
	require.False(t, omit)
	omit, _, err = p.Update("hash", nil)
	require.NoError(t, err)
	require.True(t, omit, "the first request never arrived, the second has no data")
	_, err = receive(without("hash"))
	miss(err)

	p.Invalidate("hash")
	require.Equal(t, []bool{false}, p.Cached("hash"))
	_, _, err = p.Update("hash", nil)
	miss(err)
	omit, _, err = p.Update("hash", in)
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
	_, err := p.r.Features([]lrusync.Feature[int64]{with("A", 1), without("B"), with("C", 1), without("D"), without("E")})
	var miss *lrusync.MissError
	require.ErrorAs(t, err, &miss)
	require.Equal(t, []string{"B", "D", "E"}, miss.Keys)
	require.Equal(t, "Multi-modal items ['B', 'D', 'E'] are not in the receiver (P1) cache and no data was provided to recompute them "+
		"(P0/P1 cache drift); the request should be retried with the multi-modal data attached.", sentinel.UpstreamText(err))
	require.Equal(t, []string{"A", "C"}, keysOf(p.r.Contents()))
}

func TestUpstreamCacheEvictionLRUCache(t *testing.T) {
	p := newPair(t, lrusync.Options{Capacity: lrusync.CapacityGB(6. / (1 << 30))})
	request := func(want []bool, items ...lrusync.Feature[int64]) {
		t.Helper()
		var keys []string
		for _, f := range items {
			keys = append(keys, f.Key)
		}
		cached := p.Cached(keys...)
		require.Equal(t, want, cached)
		for _, k := range keys {
			p.Touch(k)
		}
		for i, f := range items {
			var in *lrusync.Input
			if !cached[i] {
				in = &lrusync.Input{Size: f.Size}
			}
			omit, _, err := p.Update(f.Key, in)
			require.NoError(t, err)
			if omit {
				items[i] = without(f.Key)
			}
		}
		_, err := p.r.Features(items)
		require.NoError(t, err)
		p.requireEqual(t)
	}
	request([]bool{false, false, false}, with("A", 2), with("B", 2), with("C", 2))
	require.Equal(t, []string{"A", "B", "C"}, keysOf(p.Contents()))
	request([]bool{false, false, true, true}, with("D", 1), with("E", 1), with("A", 2), with("C", 2))
	require.Equal(t, []string{"D", "E", "A", "C"}, keysOf(p.Contents()))
}

// The same by tickets.
func TestUpstreamCacheEvictionLRUCacheSend(t *testing.T) {
	p := newPair(t, lrusync.Options{Capacity: 6})
	send := func(items ...lrusync.Item) lrusync.Ticket {
		tk, err := p.Send(items, func(lrusync.Ticket) error { return nil })
		require.NoError(t, err)
		_, err = p.r.Apply(tk.Envelope, features(items, tk))
		require.NoError(t, err)
		p.requireEqual(t)
		return tk
	}
	it := func(key string, size int64, have bool) lrusync.Item {
		return lrusync.Item{Key: key, Size: size, Have: have}
	}
	send(it("A", 2, true), it("B", 2, true), it("C", 2, true))
	tk := send(it("D", 1, true), it("E", 1, true), it("A", 2, false), it("C", 2, false))
	require.Equal(t, []bool{false, false, true, true}, tk.Omit)
	require.Equal(t, []string{"B"}, tk.Evicted)
	require.Equal(t, []string{"D", "E", "A", "C"}, keysOf(p.Contents()))
}

// Two LoRAs see one item under two identifiers; from 0.14 it is cached once.
func TestUpstreamProcessorCacheSharedAcrossLoRAs(t *testing.T) {
	first := lrusync.Feature[int64]{Key: "h", Identifier: "12345:h", Has: true, Value: 7, Size: 7}
	second := lrusync.Feature[int64]{Key: "h", Identifier: "67890:h"}
	for _, g := range pycompat.Releases() {
		r, err := lrusync.NewReceiver[int64](lrusync.Options{Capacity: 100, Generation: g})
		require.NoError(t, err)
		_, err = r.Features([]lrusync.Feature[int64]{first})
		require.NoError(t, err)
		got, err := r.Features([]lrusync.Feature[int64]{second})
		if !g.FeatureHash {
			require.ErrorIs(t, err, lrusync.ErrMiss, g.Version)
			continue
		}
		require.NoError(t, err, g.Version)
		require.Equal(t, []int64{7}, got)
		require.Equal(t, []string{"h"}, keysOf(r.Contents()))
	}
}

// Sleeping forgets the items at both ends; upstream once forgot them at the
// engine's only.
func TestUpstreamSleepWakePreservesMMCacheConsistency(t *testing.T) {
	p := newPair(t, lrusync.Options{Capacity: 100})
	image := []lrusync.Item{{Key: "image", Size: 10, Have: true}}
	ask := func(want bool) {
		t.Helper()
		tk, err := p.Send(image, func(lrusync.Ticket) error { return nil })
		require.NoError(t, err)
		require.Equal(t, []bool{want}, tk.Omit)
		res, err := p.r.Apply(tk.Envelope, features(image, tk))
		require.NoError(t, err)
		require.Equal(t, lrusync.Result[int64]{Values: []int64{10}}, res)
		p.requireEqual(t)
	}
	ask(false)
	ask(true)
	require.NoError(t, p.Barrier(func(e lrusync.Envelope) error { p.r.Reset(e); return nil }))
	p.requireEqual(t)
	require.Empty(t, keysOf(p.Contents()))
	ask(false)
	ask(true)
}

func TestUpstreamOversizeIsServedUncached(t *testing.T) {
	for _, g := range pycompat.Releases() {
		p := newPair(t, lrusync.Options{Capacity: 10, Generation: g})
		only, err := lrusync.NewProcessorOnly[int64](lrusync.Options{Capacity: 10, Generation: g})
		require.NoError(t, err)
		omit, _, err := p.Update("big", &lrusync.Input{Size: 11})
		_, err1 := p.r.Features([]lrusync.Feature[int64]{with("big", 11)})
		v, _, err2 := only.Update("big", 11, &lrusync.Input{Size: 11})
		if !g.Cache.PutIfFits {
			for _, err := range []error{err, err1, err2} {
				require.ErrorIs(t, err, lrusync.ErrTooLarge, g.Version)
				require.Equal(t, "value too large", sentinel.UpstreamText(err))
			}
			continue
		}
		for _, err := range []error{err, err1, err2} {
			require.NoError(t, err, g.Version)
		}
		require.False(t, omit)
		require.Equal(t, int64(11), v)
		require.Equal(t, []bool{false, false}, append(p.Cached("big"), only.Cached("big")...))
		require.Empty(t, keysOf(p.r.Contents()))
	}
}

func TestUpstreamFreshPayloadReplaces(t *testing.T) {
	for _, g := range pycompat.Releases() {
		r, err := lrusync.NewReceiver[string](lrusync.Options{Capacity: 10, Generation: g})
		require.NoError(t, err)
		_, err = r.Features([]lrusync.Feature[string]{{Key: "k", Has: true, Value: "old", Size: 3}})
		require.NoError(t, err)
		got, err := r.Features([]lrusync.Feature[string]{{Key: "k", Has: true, Value: "fresh", Size: 5}})
		require.NoError(t, err)
		want, size := "old", int64(3)
		if g.Cache.FreshWins {
			want, size = "fresh", 5
		}
		require.Equal(t, []string{want}, got, g.Version)
		got, err = r.Features([]lrusync.Feature[string]{{Key: "k"}})
		require.NoError(t, err)
		require.Equal(t, []string{want}, got, g.Version)
		contents, _ := r.Contents()
		require.Equal(t, []lrusync.KeySize{{Key: "k", Size: size}}, contents)
	}
}
