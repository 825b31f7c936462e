package kv_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/kv"
)

func layoutOf(groups ...kv.Group) kv.Layout {
	return kv.Layout{Model: "m", World: 1, ChunkTokens: 256, Groups: groups}
}

func TestCostGrowsWithThePosition(t *testing.T) {
	l := layoutOf(kv.Group{Layers: 32, Slots: 256, Hidden: 1024, DType: "bfloat16", Planes: 2, BlockTokens: 16})
	require.NoError(t, l.Validate())
	first := l.Cost(0, 0)
	require.InDelta(t, 10.4e6, float64(first), 0.1e6, "16e9 operations for each of 256 tokens, 4e14 in a second")
	require.InEpsilon(t, 2.0, float64(l.Cost(0, 30_517/256))/float64(first), 0.02)
	step := l.Cost(0, 101) - l.Cost(0, 100)
	require.Positive(t, step)
	require.InDelta(t, float64(step), float64(l.Cost(0, 1001)-l.Cost(0, 1000)), 2, "as much more with each chunk")
}

func TestCostOfGroups(t *testing.T) {
	whole := kv.Group{Layers: 8, Slots: 256, Hidden: 64, DType: "float16", Planes: 2, BlockTokens: 16}
	window, state, many := whole, whole, whole
	window.Window, state.Recurrent, many.Layers = 4, true, 80
	l := layoutOf(whole, window, state, many)
	for _, chunk := range []int{0, 3} {
		require.Equal(t, l.Cost(0, chunk), l.Cost(1, chunk), "within the window")
	}
	require.Less(t, l.Cost(1, 100), l.Cost(0, 100), "a window bounds what a token attends to")
	require.Equal(t, l.Cost(1, 1000), l.Cost(1, 100))
	require.Equal(t, l.Cost(2, 1000), l.Cost(2, 0), "a state has no positions")
	require.InDelta(t, 10*float64(l.Cost(0, 7)), float64(l.Cost(3, 7)), 20, "by layer")
	require.Less(t, l.Cost(3, 1<<16), time.Hour)
}

// TestCostOfAHostileLayout: it is no negative time, which no object may cost.
func TestCostOfAHostileLayout(t *testing.T) {
	l := layoutOf(kv.Group{Layers: 1 << 30, Slots: 1, Hidden: 1, DType: "uint8", Planes: 1, BlockTokens: 1})
	l.ChunkTokens = 1 << 16
	require.NoError(t, l.Validate())
	require.Equal(t, time.Hour, l.Cost(0, 1<<24))
}
