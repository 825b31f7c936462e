package stats

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func upTo(n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = float64(i + 1)
	}
	return x
}

func TestMedian(t *testing.T) {
	for name, c := range map[string]struct {
		in   []float64
		want float64
	}{
		"none":       {nil, 0},
		"one":        {[]float64{7}, 7},
		"two":        {[]float64{4, 1}, 2.5},
		"unsorted":   {[]float64{9, 1, 5}, 5},
		"repeated":   {[]float64{2, 2, 2, 100}, 2},
		"even count": {upTo(100), 50.5},
	} {
		t.Run(name, func(t *testing.T) { assert.InDelta(t, c.want, Median(c.in), 1e-12) })
	}
	x := []float64{3, 1, 2}
	Median(x)
	assert.Equal(t, []float64{3, 1, 2}, x, "the samples stay in their order")
}

func TestQuantile(t *testing.T) {
	for name, c := range map[string]struct {
		in   []float64
		q    float64
		want float64
	}{
		"none":                    {nil, 0.99, 0},
		"one":                     {[]float64{7}, 0.99, 7},
		"p99 of 100":              {upTo(100), 0.99, 99},
		"p99 of 101":              {upTo(101), 0.99, 100},
		"p99 of 10 is the most":   {upTo(10), 0.99, 10},
		"p50 of 4 is the second":  {upTo(4), 0.5, 2},
		"everything":              {upTo(10), 1, 10},
		"nothing is the smallest": {upTo(10), 0, 1},
	} {
		t.Run(name, func(t *testing.T) { assert.InDelta(t, c.want, Quantile(c.in, c.q), 1e-12) })
	}
}

func TestRatio(t *testing.T) {
	for name, c := range map[string]struct{ a, b, want float64 }{
		"plain": {3, 2, 1.5}, "by zero": {3, 0, 0}, "zero": {0, 2, 0},
	} {
		t.Run(name, func(t *testing.T) { assert.InDelta(t, c.want, Ratio(c.a, c.b), 1e-12) })
	}
	assert.InDelta(t, 55.0, Gigabytes(55e6, 1e6), 1e-9, "55 MB in a millisecond are 55 GB/s")
}

func TestSummarise(t *testing.T) {
	assert.Zero(t, Summarise(nil))
	assert.Zero(t, Summarise([][]float64{nil, {}}))
	s := Summarise([][]float64{{10, 20, 30}, {}, {40, 20, 30}})
	assert.Equal(t, Summary{N: 6, Median: 25, P99: 40, Min: 10, Max: 40, Spread: 0.4}, s)
	assert.Zero(t, Summarise([][]float64{upTo(9)}).Spread, "one repetition has no spread")
}
