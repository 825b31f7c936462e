// Package stats describes samples of times.
package stats

import (
	"math"
	"slices"
)

// Summary describes samples of one thing in nanoseconds. Its zero value describes none.
type Summary struct {
	N      int     `json:"n"`
	Median float64 `json:"median_ns"`
	P99    float64 `json:"p99_ns"`
	Min    float64 `json:"min_ns"`
	Max    float64 `json:"max_ns"`
	// Spread is how far the medians of the repetitions lie apart, as a part of the median: what
	// two runs differ by anyhow. It is 0 for a single repetition.
	Spread float64 `json:"spread"`
}

// Summarise describes the samples of all repetitions.
func Summarise(repetitions [][]float64) Summary {
	all := Sorted(slices.Concat(repetitions...))
	if len(all) == 0 {
		return Summary{}
	}
	var medians []float64
	for _, r := range repetitions {
		if len(r) > 0 {
			medians = append(medians, Median(r))
		}
	}
	m := Median(all)
	return Summary{
		N: len(all), Median: m, P99: Quantile(all, 0.99), Min: all[0], Max: all[len(all)-1],
		Spread: Ratio(slices.Max(medians)-slices.Min(medians), m),
	}
}

// Sorted returns the samples in order, as a copy.
func Sorted(x []float64) []float64 { return slices.Sorted(slices.Values(x)) }

// Median returns the middle of the samples, or the mean of the middle two, and 0 of none.
func Median(x []float64) float64 {
	n := len(x)
	if n == 0 {
		return 0
	}
	x = Sorted(x)
	return (x[(n-1)/2] + x[n/2]) / 2
}

// Quantile returns the smallest of the sorted samples that at least the part q of them does not exceed.
func Quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(at, 0), len(sorted)-1)]
}

// Ratio returns a / b, and 0 where b is 0: JSON has no infinity.
func Ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// Gigabytes returns the rate of n bytes in ns nanoseconds, in units of 1e9 bytes per second.
func Gigabytes(n int, ns float64) float64 { return Ratio(float64(n), ns) }
