package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/bench/internal/stats"
)

// single returns a row of a single copy.
func single(arm string, size int, ns, spread float64) copied {
	return copied{point: point{arm, cell{Size: size, Batch: 1}}, Total: stats.Summary{Median: ns, Spread: spread}}
}

func TestDerive(t *testing.T) {
	r := newReport(options{ObjectKiB: []int{1024, 24576}})
	r.Copies = []copied{
		single(goRegistered, 64*mib, 100, 0.01), single(goUnregistered, 64*mib, 299, 0.05),
		single(torchPinned, 64*mib, 98, 0),
		single(goRegistered, mib, 10, 0), single(receiver, mib, 40, 0.2),
		{point: point{goUnregistered, cell{Size: 4 * mib, Batch: 32}}, Total: stats.Summary{Median: 1}},
	}
	r.derive()
	assert.Equal(t, []derived{
		{64 * mib, goRegistered, torchPinned, 0.98, 0.98, "met", 0.01},
		{64 * mib, goRegistered, goUnregistered, 2.99, 3, "missed, by less than the noise", 0.05},
		{mib, goRegistered, receiver, 4, 0, "no goal", 0.2},
	}, r.Derived)

	r.Copies[1].Total.Median, r.Derived = 200, nil
	r.derive()
	assert.Equal(t, "missed", r.Derived[1].Verdict)

	r.Derived, r.Machine.Doubt = nil, "the driver is not real"
	r.derive()
	require.Len(t, r.Derived, 3)
	for _, d := range r.Derived {
		assert.Equal(t, "none: the driver is not real", d.Verdict)
	}
}
