package policy

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func one(*Item) float64 { return 1 }

func TestBoundOfKnownTraces(t *testing.T) {
	a, b, c := &Item{ID: 1, Size: 2}, &Item{ID: 2, Size: 2}, &Item{ID: 3, Size: 4}
	for _, tt := range []struct {
		name     string
		uses     []*Item
		capacity int64
		want     float64
	}{
		{"nothing", nil, 10, 0},
		{"one use", []*Item{a}, 10, 0},
		{"never again", []*Item{a, b, c}, 10, 0},
		{"all fit", []*Item{a, b, a, b, a}, 4, 3},
		{"too large", []*Item{c, c, c}, 3, 0},
		// a and b need 2*2 each, and there are 2*3: one whole, and a half.
		{"half", []*Item{a, b, a, b}, 2, 1.5},
		// c needs 4*2, a 2*3, and there are 3*4: the cheaper one first.
		{"of different sizes", []*Item{a, b, c, a, c}, 4, 2},
	} {
		require.InDelta(t, tt.want, Bound(tt.uses, tt.capacity, one), 1e-9, tt.name)
	}
	// a needs 2 for its weight 2, c 12 for 4; of 12 there are 10 left for c.
	size := func(it *Item) float64 { return float64(it.Size) }
	require.InDelta(t, 2+4*10.0/12, Bound([]*Item{c, a, a, c}, 4, size), 1e-9, "weights")
}

// The bound is not below the optimum, which is found by trying every set of hits.
func TestBoundIsNotBelowTheOptimum(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	reached, loose := 0, 0
	for range 3000 {
		items := make([]*Item, 2+rng.IntN(4))
		for i := range items {
			items[i] = &Item{ID: int32(i), Size: 1 + rng.Int64N(5), Cost: 1 + rng.Float64()*9}
		}
		uses := make([]*Item, 3+rng.IntN(9))
		for i := range uses {
			uses[i] = items[rng.IntN(len(items))]
		}
		capacity := 1 + rng.Int64N(9)
		for _, weight := range []func(*Item) float64{one, func(it *Item) float64 { return it.Cost }} {
			best, bound := optimum(uses, capacity, weight), Bound(uses, capacity, weight)
			require.GreaterOrEqual(t, bound, best-1e-9)
			if bound < best+1e-9 {
				reached++
			} else {
				loose++
			}
		}
	}
	require.Positive(t, reached, "a bound that is never reached may be any large number")
	require.Positive(t, loose)
}

// optimum tries every set of hits that fits at each moment.
func optimum(uses []*Item, capacity int64, weight func(*Item) float64) (best float64) {
	type hit struct{ from, to int }
	var hits []hit
	last := map[*Item]int{}
	for i, it := range uses {
		if before, ok := last[it]; ok {
			hits = append(hits, hit{before, i})
		}
		last[it] = i
	}
	for set := range 1 << len(hits) {
		sum, used := 0.0, make([]int64, len(uses))
		fits := true
		for i, h := range hits {
			if set>>i&1 == 0 {
				continue
			}
			sum += weight(uses[h.to])
			for at := h.from; at < h.to; at++ {
				used[at] += uses[h.to].Size
				fits = fits && used[at] <= capacity
			}
		}
		if fits {
			best = max(best, sum)
		}
	}
	return best
}
