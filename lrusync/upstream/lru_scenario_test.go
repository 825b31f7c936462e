package upstream_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/lrusync/upstream"
)

// The scenario of upstream's tests/utils_/test_cache.py.

// Upstream runs this twice, by methods and by [] and del, which are the same
// here.
func TestUpstreamLRUCache(t *testing.T) {
	var removed []string
	l := upstream.NewLRUCache(3, upstream.LRUOptions[int]{OnRemove: func(k string, _ int) { removed = append(removed, k) }})
	put := func(keys ...int) {
		for _, k := range keys {
			require.NoError(t, l.Put(fmt.Sprint(k), k, 1))
		}
	}
	holds := func(keys ...string) {
		t.Helper()
		var got []string
		for k := range l.All() {
			got = append(got, k)
		}
		require.ElementsMatch(t, keys, got)
		require.NoError(t, l.CheckStructure())
	}
	stats := func(all, delta lrusync.Stats) {
		t.Helper()
		require.Equal(t, all, l.Stat(false))
		require.Equal(t, delta, l.Stat(true))
	}
	put(1, 1)
	require.Equal(t, 1, l.Len())
	put(2, 3, 4)
	holds("2", "3", "4")
	require.Equal(t, []string{"1"}, removed)
	v, ok := l.Get("2")
	require.True(t, ok)
	require.Equal(t, 2, v)
	stats(lrusync.Stats{Hits: 1, Total: 1}, lrusync.Stats{Hits: 1, Total: 1})
	v, ok = l.GetItem("2")
	require.True(t, ok)
	require.Equal(t, 2, v)
	stats(lrusync.Stats{Hits: 2, Total: 2}, lrusync.Stats{Hits: 1, Total: 1})
	put(5)
	holds("2", "4", "5")
	_, ok = l.Pop("5")
	require.True(t, ok)
	_, ok = l.Get("-1")
	require.False(t, ok)
	stats(lrusync.Stats{Hits: 2, Total: 3}, lrusync.Stats{Total: 1})
	_, ok = l.Pop("10")
	require.False(t, ok)
	_, ok = l.Get("10")
	require.False(t, ok)
	holds("2", "4")
	put(6)
	holds("2", "4", "6")
	_, _, err := l.PopItem(false)
	require.NoError(t, err)
	holds("2", "6")
	l.Clear()
	require.Len(t, removed, 6)
	stats(lrusync.Stats{}, lrusync.Stats{})
}
