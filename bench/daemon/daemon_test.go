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

func TestRun(t *testing.T) {
	o := options{Sessions: 3, Seconds: 0.02, Rounds: 2, GiB: 0.04, Objects: 1000, Kills: 2, Goal: 5 * time.Minute,
		ShmDir: t.TempDir()}
	require.NoError(t, o.Validate())
	r, err := run(t.Context(), o)
	require.NoError(t, err)
	require.NoError(t, r.Check(o))
	require.Len(t, r.restarts, 2)
	require.Len(t, r.timed, 2*len(kinds()))
	for _, x := range r.timed {
		for _, l := range []latencies{x.ours, x.floor} {
			require.Positive(t, l.p50, x.kind)
			require.GreaterOrEqual(t, l.p99, l.p50, x.kind)
			require.Positive(t, l.rate, x.kind)
		}
	}
	require.Positive(t, r.perObject)
	require.Positive(t, r.full)
	left, err := os.ReadDir(o.ShmDir)
	require.NoError(t, err)
	require.Empty(t, left)
	var table bytes.Buffer
	r.Write(&table, o)
	require.Contains(t, table.String(), "1000 of 1000 objects were there")
	t.Log(table.String())
}

func TestCheck(t *testing.T) {
	o := options{Objects: 10, Goal: 2 * time.Second}
	require.NoError(t, (&results{restarts: []float64{0.1, 1.9}, found: 10}).Check(o))
	require.ErrorContains(t, (&results{restarts: []float64{0.1, 2.1}, found: 10}).Check(o), "the goal is 2s")
	require.ErrorContains(t, (&results{restarts: []float64{0.1}, found: 9}).Check(o), "9 objects are there of 10")
}

// TestFloorHasTheSameFrames: the echo is no floor for frames of other lengths than those of the daemon.
func TestFloorHasTheSameFrames(t *testing.T) {
	o := options{GiB: 1, Objects: 10_000}
	for _, k := range kinds() {
		frames := k.frames(o)
		require.Len(t, frames, k.calls, k.name)
		for _, f := range frames {
			require.Greater(t, f[0], 50, k.name)
			require.Greater(t, f[1], 10, k.name)
		}
	}
}
