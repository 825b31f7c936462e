package engine

import (
	"fmt"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/serde"
)

// What the engine's encoder may still have is remembered as long as the item is cached, however many others there are.
func TestSweepKeepsWhatIsCached(t *testing.T) {
	cache, err := mmcache.Open(mmcache.Options{Mode: "processor_only", Capacity: 1 << 20})
	require.NoError(t, err)
	defer func() { require.NoError(t, cache.Close()) }()
	r, err := cache.Begin(t.Context(), "r", mmcache.Want{Key: "cached", Bytes: 64, Modality: "image"})
	require.NoError(t, err)
	_, err = r.Item(t.Context(), "cached", mmcache.Ready(&serde.Item{Modality: "image", Elems: []serde.Elem{
		{Key: "pixels", Data: &serde.Tensor{DType: "uint8", Shape: []int{2}, Data: []byte{1, 2}}},
	}}, nil))
	require.NoError(t, err)
	r.Rollback()

	var s sentItems
	s.put("cached", 6)
	for i := range firstSweep {
		s.put(fmt.Sprint("gone-", i), 6)
	}
	require.Len(t, s.items, firstSweep+1)
	s.sweep(cache)
	require.Len(t, s.items, 1, "what is not cached is forgotten")
	require.NoError(t, s.check("cached", 6))
	require.ErrorContains(t, s.check("cached", 7), "took 6 before")
	s.reset()
	require.NoError(t, s.check("cached", 7), "the engine has forgotten it")
}

// sendingWhileListed is a cache that lets something happen while its keys are listed.
type sendingWhileListed struct {
	mmcache.Cache
	send func()
}

func (c sendingWhileListed) Keys() iter.Seq2[string, int64] {
	c.send()
	return c.Cache.Keys()
}

// An item that is sent while the keys of the cache are listed may not be among them, and is remembered all the same.
func TestSweepKeepsWhatIsSentMeanwhile(t *testing.T) {
	cache, err := mmcache.Open(mmcache.Options{Mode: "processor_only", Capacity: 1 << 20})
	require.NoError(t, err)
	defer func() { require.NoError(t, cache.Close()) }()
	var s sentItems
	for i := range firstSweep + 1 {
		s.put(fmt.Sprint("gone-", i), 6)
	}
	s.sweep(sendingWhileListed{cache, func() { s.put("sent meanwhile", 6) }})
	require.Len(t, s.items, 1, "what is not cached is forgotten")
	require.ErrorContains(t, s.check("sent meanwhile", 7), "took 6 before")
}
