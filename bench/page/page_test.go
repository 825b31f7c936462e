package main

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/bench/internal/measure"
)

func TestMain(m *testing.M) {
	measure.AsChild(roles)
	os.Exit(m.Run())
}

// TestRun: a short run has all figures, and leaves nothing.
func TestRun(t *testing.T) {
	o := options{
		Minutes:  0.001,
		Rate:     500,
		Sessions: 3,
		Pages:    2,
		Turn:     300 * time.Millisecond,
		Objects:  2000,
		GiB:      0.02,
		ShmDir:   t.TempDir(),
	}
	require.NoError(t, o.Validate())
	r, err := run(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, len(r.with), len(r.without))
	require.NotEmpty(t, r.with)
	for i := range r.with {
		require.Positive(t, r.with[i].read, "the page was open")
		require.Zero(t, r.without[i].read)
		require.Positive(t, r.with[i].memory)
	}
	var table bytes.Buffer
	r.Write(&table, o)
	require.Contains(t, table.String(), "| median of a call, µs |")
	require.NoError(t, r.Check(o))
	left, err := os.ReadDir(o.ShmDir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestCompare: pairs are compared, not sums, so that what slows both does not count.
func TestCompare(t *testing.T) {
	var r results
	for i := range 20 {
		us := float64(100 * (1 + i%5)) // the machine is slow at times
		r.without = append(r.without, turn{us: []float64{us}, seconds: 1})
		r.with = append(r.with, turn{us: []float64{us * 1.1}, seconds: 1})
	}
	c := r.compare(figures[0])
	require.InDelta(t, 1.1, c.ratio, 1e-9)
	require.InDelta(t, 1.1, c.low, 1e-9)
	require.InDelta(t, 1.1, c.up, 1e-9)
	require.Error(t, r.Check(options{Goal: 2}))
	require.NoError(t, r.Check(options{Goal: 11}))
	require.NoError(t, r.Check(options{}))
}
