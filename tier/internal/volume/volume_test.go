//go:build !race

// The race detector takes more memory than the budgets allow.

package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/tier"
)

func small(t *testing.T) options {
	o := options{GiB: 0.4, MemoryGiB: 0.14, Writers: 1, Seed: 1, Disk: t.TempDir()}
	require.NoError(t, o.Validate())
	return o
}

func TestNothingIsAboveItsBudget(t *testing.T) {
	for name, disk := range map[string]float64{"memory": 0, "memory and disk": 0.14} {
		t.Run(name, func(t *testing.T) {
			o := small(t)
			o.DiskGiB = disk
			require.NoError(t, o.Validate())
			r, err := run(t.Context(), o)
			require.NoError(t, err)
			require.Positive(t, r.evicted, "more is written than there is room for")
			require.Positive(t, r.written)
			require.GreaterOrEqual(t, r.written, r.found+r.missed, "each object is read at most once after it")
			require.Positive(t, r.memory)
			require.Positive(t, r.shared)
			require.Equal(t, disk > 0, r.disk > 0)
			require.Equal(t, disk > 0, r.files > 0)
			left, err := filepath.Glob(filepath.Join(o.Disk, "*"))
			require.NoError(t, err)
			require.Empty(t, left)
			t.Log(r)
		})
	}
}

func TestEveryBudgetIsChecked(t *testing.T) {
	o := options{GiB: 1, MemoryGiB: 1, DiskGiB: 2, Writers: 2}
	good := report{bytes: gib, found: 1, samples: 2, memory: gib, segment: gib, shared: gib, private: mib, disk: 2 * gib, files: 2 * gib, before: 9, descriptors: 20, at: 9}
	require.NoError(t, good.check(o))
	for what, change := range map[string]func(r *report){
		"bytes of the memory level":    func(r *report) { r.memory++ },
		"files of its segment":         func(r *report) { r.segment += gib / 8 },
		"shared memory of the process": func(r *report) { r.shared += gib / 8 },
		"memory of its own":            func(r *report) { r.private = gib },
		"bytes of the disk level":      func(r *report) { r.disk++ },
		"files of the disk level":      func(r *report) { r.files += gib / 4 },
		"descriptors:":                 func(r *report) { r.descriptors = 100 },
		"descriptors at the end":       func(r *report) { r.at++ },
		"bytes were written":           func(r *report) { r.bytes-- },
		"nothing was shown":            func(r *report) { r.found = 0 },
		"1 samples":                    func(r *report) { r.samples = 1 },
	} {
		r := good
		change(&r)
		require.ErrorContains(t, r.check(o), what)
	}
}

// forger returns another object's bytes, or fewer.
type forger struct {
	keeper
	forge func(g *tier.Get)
}

func (f forger) Get(ctx context.Context, gets []tier.Get) {
	f.keeper.Get(ctx, gets)
	if gets[0].Err == nil {
		f.forge(&gets[0])
	}
}

func TestWrongBytesAreFound(t *testing.T) {
	for name, forge := range map[string]func(g *tier.Get){
		"a bit":   func(g *tier.Get) { g.Bytes[len(g.Bytes)/2] ^= 1 },
		"a size":  func(g *tier.Get) { g.Object.Size-- },
		"a shift": func(g *tier.Get) { copy(g.Bytes, g.Bytes[8:]) },
	} {
		t.Run(name, func(t *testing.T) {
			o := small(t)
			l, err := open(o, "ringcache-volume-test-"+filepath.Base(o.Disk))
			require.NoError(t, err)
			w := &work{o: o, keeper: forger{l.keeper(), forge}, random: newRandom(1)}
			err = w.all(t.Context())
			require.NoError(t, l.remove())
			require.ErrorContains(t, err, "is not what was put")
		})
	}
}

func TestOptions(t *testing.T) {
	for _, change := range []func(o *options){
		func(o *options) { o.Writers = 0 }, func(o *options) { o.GiB = 0 }, func(o *options) { o.MemoryGiB = 0.1 }, func(o *options) { o.DiskGiB = 0.1 },
	} {
		o := small(t)
		change(&o)
		require.Error(t, o.Validate())
	}
}

func TestTakenBelow(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "a", "b"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "a", "b", "c"), make([]byte, 10_000), 0o600))
	n, err := takenBelow(folder)
	require.NoError(t, err)
	require.GreaterOrEqual(t, n, int64(10_000))
	require.Less(t, n, int64(100_000))
}
