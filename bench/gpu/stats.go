package main

import (
	"math"
	"slices"
)

// summary describes samples of one thing in nanoseconds. Its zero value describes none.
type summary struct {
	N      int     `json:"n"`
	Median float64 `json:"median_ns"`
	P99    float64 `json:"p99_ns"`
	Min    float64 `json:"min_ns"`
	Max    float64 `json:"max_ns"`
	// Spread is how far the medians of the repetitions lie apart, as a part of the median: what
	// two runs differ by anyhow. It is 0 for a single repetition.
	Spread float64 `json:"spread"`
}

// summarise describes the samples of all repetitions.
func summarise(repetitions [][]float64) summary {
	all := slices.Sorted(slices.Values(slices.Concat(repetitions...)))
	if len(all) == 0 {
		return summary{}
	}
	var medians []float64
	for _, r := range repetitions {
		if len(r) > 0 {
			medians = append(medians, median(r))
		}
	}
	m := median(all)
	return summary{
		N: len(all), Median: m, P99: quantile(all, 0.99), Min: all[0], Max: all[len(all)-1],
		Spread: ratio(slices.Max(medians)-slices.Min(medians), m),
	}
}

// median returns the middle of the samples, or the mean of the middle two, and 0 of none.
func median(x []float64) float64 {
	n := len(x)
	if n == 0 {
		return 0
	}
	x = slices.Sorted(slices.Values(x))
	return (x[(n-1)/2] + x[n/2]) / 2
}

// quantile returns the smallest of the sorted samples that at least the part q of them does not exceed.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(at, 0), len(sorted)-1)]
}

// ratio returns a / b, and 0 where b is 0: JSON has no infinity.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// gigabytes returns the rate of n bytes in ns nanoseconds, in units of 1e9 bytes per second.
func gigabytes(n int, ns float64) float64 { return ratio(float64(n), ns) }
