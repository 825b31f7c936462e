package system_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/model"
	"github.com/ringcache/ringcache/fuzz/system"
	"github.com/ringcache/ringcache/internal/shmfile"
)

var long = flag.Bool("long", false, "more operations with each release, and every planted bug")

// releases are one of each wire generation and of each rule of the caches.
var releases = []string{"0.11.2", "0.12.0", "0.13.0", "0.16.0", "0.24.0", "0.28.0", "0.29.0", "0.31.0", "0.32.0",
	"0.33.0"}

// differential compares this module with the model of a family.
func differential(t testing.TB, family, version string) system.Differential {
	t.Helper()
	release, err := model.Lookup(version)
	require.NoError(t, err)
	i := slices.IndexFunc(system.Families(), func(f system.Family) bool { return f.Name == family })
	f, c := system.Families()[i], system.Case{Release: release, Ours: true}
	return system.Differential{
		Family: f, Case: c, Seed: 1, Ops: 3000,
		Lead:     func(context.Context) (fuzz.System, error) { return system.Agent(), nil },
		Follower: func(context.Context) (fuzz.System, error) { return f.Model(c), nil },
	}
}

// TestOursAgreesWithTheModels performs sequences of every family and release.
func TestOursAgreesWithTheModels(t *testing.T) {
	for _, family := range system.Families() {
		for _, version := range releases {
			t.Run(family.Name+"/"+version, func(t *testing.T) {
				d := differential(t, family.Name, version)
				if d.Ops = 200; *long {
					d.Ops = 2000
				}
				r, err := d.Run(t.Context())
				require.NoError(t, err)
				if r.Failure != nil {
					t.Fatal(r.Failure)
				}
				require.GreaterOrEqual(t, r.Ops, d.Ops)
				require.Empty(t, r.Parted)
			})
		}
	}
}

// wrong is a system with a planted bug.
type wrong struct {
	fuzz.System
	change func(op fuzz.Op, r *fuzz.Reply)
}

func (w wrong) Do(ops []fuzz.Op) ([]fuzz.Reply, error) {
	replies, err := w.System.Do(ops)
	for i := range replies {
		w.change(ops[i], &replies[i])
	}
	return replies, err
}

// TestPlantedBugs: each is found, and the sequence that shows it is as short as can be. Without -long there
// is one of each family.
func TestPlantedBugs(t *testing.T) {
	for _, tt := range []struct {
		name, family string
		change       func(op fuzz.Op, r *fuzz.Reply)
		last         string // operation of the shortest sequences that show it
		length       int    // of those
		long         bool
	}{
		{"a shifted address", "ring", func(op fuzz.Op, r *fuzz.Reply) {
			if op.Name == "ring.alloc" && r.Kind == "" && r.Fields["id"] == int64(2) {
				r.Fields["address"] = r.Fields["address"].(int64) + 8
			}
		}, "ring.alloc", 4, false},
		{"a full ring that is called stale", "ring", func(_ fuzz.Op, r *fuzz.Reply) {
			if r.Kind == "full" {
				r.Kind = "stale"
			}
		}, "ring.alloc", 2, true},
		{"another text than vLLM's", "ring", func(_ fuzz.Op, r *fuzz.Reply) {
			if r.Kind == "full" {
				r.Upstream += "."
			}
		}, "ring.alloc", 2, true},
		{"a wrong signature of hits", "store", func(op fuzz.Op, r *fuzz.Reply) {
			if op.Name == "store.lookup" && r.Kind == "" {
				r.Fields["signature"] = "00"
			}
		}, "store.lookup", 3, false},
		{"a count that is lost", "store", func(op fuzz.Op, r *fuzz.Reply) {
			if counts, ok := r.Fields["writer_flag"].(map[string]any); ok && op.Name == "store.state" &&
				len(counts) > 0 {
				clear(counts)
			}
		}, "store.state", 3, true},
		{"the order of two keys", "lru", func(_ fuzz.Op, r *fuzz.Reply) {
			if order, ok := r.Fields["order"].([]any); ok {
				slices.Reverse(order)
			}
		}, "lru.state", 4, false},
		{"a hit too many", "pair", func(op fuzz.Op, r *fuzz.Reply) {
			if hits, ok := r.Fields["hits"].(int64); ok && hits > 0 {
				r.Fields["hits"] = hits + 1
			}
		}, "pair.state", 3, false},
	} {
		if tt.long && !*long {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			d := differential(t, tt.family, "0.32.0")
			d.Follower = func(context.Context) (fuzz.System, error) { return wrong{system.Agent(), tt.change}, nil }
			d.Ops, d.Length = 20000, 40
			d.Repeat = func(seed uint64) string { return "the command" }
			r, err := d.Run(t.Context())
			require.NoError(t, err)
			require.NotNil(t, r.Failure)
			require.Len(t, r.Failure.Ops, tt.length, r.Failure)
			require.Equal(t, tt.last, r.Failure.Ops[tt.length-1].Name)
			require.Equal(t, r.Last, r.Failure.Seed)
			require.ErrorContains(t, r.Failure, "the first system:")
			require.ErrorContains(t, r.Failure, "again: the command")

			if tt.family != "lru" {
				return // the rest takes as long again
			}
			d.Seed, d.Ops = r.Failure.Seed, 1
			again, err := d.Run(t.Context())
			require.NoError(t, err)
			require.Equal(t, r.Failure.Error(), again.Failure.Error(), "the seed alone finds it again")
		})
	}
}

func TestRunEnds(t *testing.T) {
	d := differential(t, "lru", "0.32.0")
	d.Ops = 1 << 60
	progress := 0
	d.Until = time.Now()
	r, err := d.Run(t.Context())
	require.NoError(t, err)
	require.Zero(t, r.Sequences, "none begins after that time")

	d.Until = time.Time{}
	ctx, cancel := context.WithCancel(t.Context())
	d.Progress = func(system.Result) {
		if progress++; progress == 2 {
			cancel()
		}
	}
	_, err = d.Run(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Positive(t, progress)

	bad := os.ErrPermission
	d.Lead = func(context.Context) (fuzz.System, error) { return nil, bad }
	_, err = d.Run(t.Context())
	require.ErrorIs(t, err, bad)
}

// TestSegmentsAreRemoved when a process is killed that had some.
func TestSegmentsAreRemoved(t *testing.T) {
	d := differential(t, "store", "0.32.0")
	d.Family.Generate = func(system.Case) fuzz.Generator {
		return func(*fuzz.Choices, int) []fuzz.Op {
			return []fuzz.Op{
				{Name: "store.create", Args: map[string]any{"store": "w", "size": 1000, "max_object": 500,
					"readers": 1, "lock": "l"}},
				newRing(), alloc(77),
			}
		}
	}
	var seen []string
	d.Follower = func(ctx context.Context) (fuzz.System, error) {
		s, err := startPeer(ctx, "dies", 0)
		return wrong{s, func(op fuzz.Op, _ *fuzz.Reply) {
			if op.Name == "store.create" {
				seen = append(seen, filepath.Join(shmfile.DefaultDir, op.Args["name"].(string)),
					filepath.Join(shmfile.DefaultDir, "sem."+op.Args["lock"].(string)[1:]))
			}
		}}, err
	}
	r, err := d.Run(t.Context())
	require.NoError(t, err)
	require.NotNil(t, r.Failure)
	require.NotEmpty(t, seen)
	for _, path := range seen {
		require.NoFileExists(t, path)
	}
}

// TestReplay shows both replies to each line, and what differs.
func TestReplay(t *testing.T) {
	ops, err := fuzz.Parse(`{"op":"ring.new","ring":"r","size":100}
		{"op":"ring.alloc","seq":1,"ring":"r","size":20}
		{"op":"ring.free","ring":"r","ids":[{"ref":[1,"id",null]}]}`)
	require.NoError(t, err)
	d := differential(t, "ring", "0.32.0")
	d.Follower = func(context.Context) (fuzz.System, error) {
		return wrong{system.Agent(), func(op fuzz.Op, r *fuzz.Reply) {
			if op.Name == "ring.free" {
				r.Fields["freed"] = []any{}
			}
		}}, nil
	}
	var different []string
	require.NoError(t, d.Replay(t.Context(), ops, func(op fuzz.Op, want, got fuzz.Reply, what string) {
		if what != "" {
			different = append(different, op.Name+": "+what+": "+want.String()+got.String())
		}
	}))
	require.Equal(t, []string{`ring.free: freed differs: {"freed":[0]}{"freed":[]}`}, different)

	family, err := system.FamilyOf(fuzz.Op{Name: "size_of"})
	require.NoError(t, err)
	require.Equal(t, "pair", family.Name)
	_, err = system.FamilyOf(fuzz.Op{Name: "hash"})
	require.ErrorContains(t, err, "no family")
}
