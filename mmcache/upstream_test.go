package mmcache_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/objstore"
)

// Scenarios of vLLM's tests/multimodal/test_cache.py that need a whole cache.

const mib = 1 << 20

// test_cache_eviction_shm_cache
func TestUpstreamCacheEvictionSHM(t *testing.T) {
	const ring = 15*mib + mib/5
	c := openShared(t, mmcache.Options{Capacity: ring, Shared: mmcache.SharedOptions{FIFO: true, MaxObject: 6 * mib}})
	r, err := objstore.Open(c.Name(), objstore.ReaderOptions{Dir: segmentDir(t), RingSize: ring, Readers: 1, Lock: make(mutex, 1)})
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	reader := &worker{t, r}
	size := map[string]int{"A": 5, "B": 5, "C": 5, "G": 2, "H": 2, "I": 2}
	request := func(keys ...string) (refused []string) {
		var ws []mmcache.Want
		for _, k := range keys {
			ws = append(ws, want(size[k]*mib, k)...)
		}
		r, err := c.Begin(ctx, "request", ws...)
		require.NoError(t, err)
		for _, k := range keys {
			it, err := r.Item(ctx, k, produceItem(k, size[k]*mib))
			require.NoError(t, err)
			if it.Refused != nil {
				refused = append(refused, k)
			}
		}
		require.NoError(t, r.Commit(ctx, func(b mmcache.Batch) error { reader.take(b); return nil }))
		r.Finish()
		return refused
	}
	keys := func() (out []string) {
		for k := range c.Keys() {
			out = append(out, k)
		}
		return out
	}
	require.Empty(t, request("A", "B", "C"))
	require.Equal(t, []string{"G"}, request("G", "A"), "A is needed, and first in line")
	require.Equal(t, []string{"A", "B", "C"}, keys())
	require.Equal(t, []string{"I"}, request("G", "H", "I", "B"))
	require.Equal(t, []string{"B", "C", "G", "H"}, keys())
}

// test_ipc_enable_disable_consistency: whatever the mode, the engine gets the
// same items.
func TestUpstreamConsistencyOfModes(t *testing.T) {
	sequences := [][]string{{"a", "b"}, {"c"}, {"a"}, {"d", "e", "a"}, {"b"}, {"b", "c", "d"}, {"e", "a"}, {"a", "a"}}
	forEachMode(t, mmcache.Options{Capacity: 1200, Shared: mmcache.SharedOptions{MaxObject: 700}}, func(t *testing.T, c mmcache.Cache) {
		var p peer = inline{t}
		switch c.Mode() {
		case "lru":
			p = faithful{newEngine(t, 1200)}
		case "shm":
			r, err := objstore.Open(c.(*mmcache.Shared).Name(), objstore.ReaderOptions{Dir: segmentDir(t), RingSize: 1200, Readers: 1, Lock: make(mutex, 1)})
			require.NoError(t, err)
			defer func() { require.NoError(t, r.Close()) }()
			p = &worker{t, r}
		}
		for range 20 {
			for _, keys := range sequences {
				r, b := run(t, c, 300, keys...)
				require.Len(t, b.Items, len(keys))
				missing, drift := p.take(b) // compares the content of every item
				require.Empty(t, missing)
				require.Nil(t, drift)
				r.Finish()
			}
		}
	})
}

// faithful is an engine whose items are compared.
type faithful struct{ *engine }

func (f faithful) take(b mmcache.Batch) ([]string, *lrusync.Drift) {
	res := f.engine.take(b)
	for i, w := range b.Items {
		if res.Missing == nil {
			assertContent(f.t, w.Key, res.Values[i])
		}
	}
	return res.Missing, res.Drift
}
