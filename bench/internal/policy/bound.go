package policy

import (
	"cmp"
	"slices"
)

// Bound returns what no rule can exceed: an upper bound of the sum of weights over the hits of any cache of
// so many bytes, even of one that may choose what to admit and has no parents to care for. weight is
// positive.
//
// It is PFOO-L of Berger, Beckmann and Harchol-Balter ("Practical Bounds on Optimal Caching with Variable
// Object Sizes", 2018). A hit needs the item in the cache from the use before: bytes, times uses. A cache has
// its capacity, times the uses of the trace. The bound takes the hits with the most weight for what they
// need, and a part of the last, until all of that is spent, without asking whether they fit at each moment:
// so it may be out of reach.
func Bound(uses []*Item, capacity int64, weight func(*Item) float64) float64 {
	type hit struct{ needs, weight float64 }
	var hits []hit
	last := map[*Item]int{}
	for i, it := range uses {
		if before, ok := last[it]; ok && it.Size <= capacity {
			hits = append(hits, hit{float64(it.Size) * float64(i-before), weight(it)})
		}
		last[it] = i
	}
	slices.SortFunc(hits, func(a, b hit) int { return cmp.Compare(a.needs*b.weight, b.needs*a.weight) })
	left, sum := float64(capacity)*float64(max(len(uses)-1, 0)), 0.0
	for _, h := range hits {
		if h.needs > left {
			return sum + h.weight*left/h.needs
		}
		left -= h.needs
		sum += h.weight
	}
	return sum
}
