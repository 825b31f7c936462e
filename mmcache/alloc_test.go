package mmcache_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/invariants"
)

// A request for a few items that are cached, which are sent as addresses, is one
// allocation, and what the store allocates for its own request: three at most for two items.
func TestHitIsOneAllocation(t *testing.T) {
	if invariants.Enabled {
		t.Skip("checks of invariants, which this build has, allocate too")
	}
	for _, n := range []int{1, 2, 4} {
		t.Run(fmt.Sprintf("%d items", n), func(t *testing.T) {
			c, keys := hitCache(t, "shm", n)
			hit := cacheHit(t, c, keys, encoder())
			store := storeHit(t, keys, false)
			all, stores := testing.AllocsPerRun(100, func() { hit("r") }), testing.AllocsPerRun(100, func() { store("r") })
			t.Logf("%v allocations, of which the store makes %v", all, stores)
			require.LessOrEqual(t, all-stores, 1.0)
			if n <= 2 {
				require.LessOrEqual(t, all, 3.0)
			}
		})
	}
}

// More items than a few take five: the request, its items, their places, what is sent, and
// the map of keys, which takes two.
func TestHitOfManyItems(t *testing.T) {
	if invariants.Enabled {
		t.Skip("checks of invariants, which this build has, allocate too")
	}
	c, keys := hitCache(t, "shm", 8)
	hit, store := cacheHit(t, c, keys, sent), storeHit(t, keys, false)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { hit("r") })-testing.AllocsPerRun(100, func() { store("r") }), 6.0)
}

// Other modes share the request.
func TestHitOfOtherModes(t *testing.T) {
	if invariants.Enabled {
		t.Skip("checks of invariants, which this build has, allocate too")
	}
	for mode, most := range map[string]float64{
		"processor_only": 2, // the list of what is pinned
		"lru":            7,
	} {
		t.Run(mode, func(t *testing.T) {
			c, keys := hitCache(t, mode, 1)
			hit := cacheHit(t, c, keys, sent)
			require.LessOrEqual(t, testing.AllocsPerRun(100, func() { hit("r") }), most)
		})
	}
}
