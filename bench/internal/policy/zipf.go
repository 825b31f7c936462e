package policy

import (
	"math"
	"math/rand/v2"
	"sort"
)

// Zipf draws ranks with weight 1/(rank+1)^s, also for s <= 1.
type Zipf struct {
	rng *rand.Rand
	sum []float64
}

// NewZipf draws ranks below n, which is positive.
func NewZipf(rng *rand.Rand, n int, s float64) *Zipf {
	z := &Zipf{rng: rng, sum: make([]float64, n)}
	total := 0.0
	for i := range z.sum {
		total += math.Pow(float64(i+1), -s)
		z.sum[i] = total
	}
	return z
}

// Rank draws a rank.
func (z *Zipf) Rank() int {
	return min(sort.SearchFloat64s(z.sum, z.rng.Float64()*z.sum[len(z.sum)-1]), len(z.sum)-1)
}
