package ringtest_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/fuzz/internal/harness/harnesstest"
	"github.com/ringcache/ringcache/fuzz/model"
	"github.com/ringcache/ringcache/fuzz/ringtest"
)

func TestFuzzAndExhaustAndMachineFindDefects(t *testing.T) {
	report := harnesstest.FailureOf(t, func(t testing.TB) {
		ringtest.Exhaust(t, newBroken("no-overlap"), ringtest.Options{})
	})
	require.Contains(t, report, "no-overlap")
	require.LessOrEqual(t, strings.Count(report, "\n    {"), 5, "a shortest history")
	require.NotContains(t, report, "seed", "none made it")
	report = harnesstest.FailureOf(t, func(t testing.TB) {
		ringtest.Exhaust(t, newBroken("id-window"), ringtest.Options{Depth: 3})
	})
	require.Contains(t, report, "id-window", "ids end in every history")

	rt := &harnesstest.T{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		rapid.Check(rapidTB{rt}, ringtest.Machine(newBroken("no-overlap"), ringtest.Options{}))
	}()
	<-done
	require.Contains(t, rt.Report+strings.Join(rt.Logged, "\n"), "no-overlap")
}

// rapidTB passes rapid's reports on.
type rapidTB struct{ *harnesstest.T }

func (r rapidTB) Errorf(format string, args ...any) { r.Report += fmt.Sprintf(format, args...) }
func (r rapidTB) FailNow()                          { runtime.Goexit() }
func (r rapidTB) Fail()                             {}
func (r rapidTB) Failed() bool                      { return r.Report != "" }

// FuzzPlain is a target that finds nothing; its seeds must be the sequences of the same seeds.
func FuzzPlain(f *testing.F) {
	ringtest.Fuzz(f, func(size int, firstID uint32) ringtest.Ring {
		return newPlain(model.Release{}, size, firstID)
	}, ringtest.Options{Release: "0.33.0"})
}

func TestSeedsAreFoundAsBytes(t *testing.T) {
	found := 0
	for seed := range uint64(30) {
		data, err := ringtest.Bytes(newBroken("no-overlap"), ringtest.Options{}, seed, 200)
		require.NoError(t, err)
		require.Less(t, len(data), 4000)
		if len(data) > 100 {
			found++
		}
	}
	require.Greater(t, found, 20)
}

// A correct ring raises no alarm, in any way of testing.
func TestPlainRingPasses(t *testing.T) {
	for _, version := range []string{"0.11.2", "0.31.0", "0.33.0"} {
		t.Run(version, func(t *testing.T) {
			r, err := model.Lookup(version)
			require.NoError(t, err)
			o := ringtest.Options{Release: version, Ops: 20_000, Depth: 4}
			if r.IDsRestart {
				o.Without = []string{"ids-unique", "stale-handle"}
			}
			n := func(size int, firstID uint32) ringtest.Ring { return newPlain(r, size, firstID) }
			ringtest.Check(t, n, o)
			ringtest.Exhaust(t, n, o)
			ringtest.Crash(t, n, o, nil)
		})
	}
}

// The defect of 0.11.0 is found, though placement itself is as that release has it.
func TestFirstReleaseOverlaps(t *testing.T) {
	r, err := model.Lookup("0.11.0")
	require.NoError(t, err)
	report := harnesstest.FailureOf(t, func(t testing.TB) {
		ringtest.Check(t, func(size int, firstID uint32) ringtest.Ring {
			return newPlain(r, size, max(firstID, 1))
		}, ringtest.Options{Without: []string{"live", "id-window", "ids-unique", "stale-handle"}})
	})
	require.Regexp(t, "no-overlap|drain", report)
}

func TestBadOptions(t *testing.T) {
	n := newBroken("panic")
	for what, check := range map[string]func(t testing.TB){
		`no invariant "overlap"`: func(t testing.TB) {
			ringtest.Check(t, n, ringtest.Options{Without: []string{"overlap"}})
		},
		"no release of vLLM": func(t testing.TB) { ringtest.Check(t, n, ringtest.Options{Release: "1.0"}) },
		"no ring was made": func(t testing.TB) {
			ringtest.Check(t, func(int, uint32) ringtest.Ring { return nil }, ringtest.Options{})
		},
		"for 40 bytes": func(t testing.TB) {
			ringtest.Exhaust(t, func(int, uint32) ringtest.Ring { return nil }, ringtest.Options{})
		},
		"line 1 is no operation": func(t testing.TB) { ringtest.Replay(t, n, ringtest.Options{}, "x") },
		"store.clear is none of the operations": func(t testing.TB) {
			ringtest.Replay(t, n, ringtest.Options{}, `{"op":"store.clear","store":"s"}`)
		},
		"frees without a limit": func(t testing.TB) {
			ringtest.Replay(t, n, ringtest.Options{}, `{"op":"ring.free","ring":"r","all":true,"limit":3}`)
		},
		"for one ring": func(t testing.TB) {
			ringtest.Replay(t, n, ringtest.Options{},
				`{"op":"ring.clear","ring":"r"}`+"\n"+`{"op":"ring.clear","ring":"s"}`)
		},
		"begin with ring.new": func(t testing.TB) {
			ringtest.Replay(t, n, ringtest.Options{}, `{"op":"ring.clear","ring":"r"}`)
		},
	} {
		t.Run(what, func(t *testing.T) { require.Contains(t, harnesstest.FailureOf(t, check), what) })
	}
	t.Setenv("FUZZ_SEED", "x")
	require.Contains(t, harnesstest.FailureOf(t, func(t testing.TB) {
		ringtest.Check(t, n, ringtest.Options{})
	}), "FUZZ_SEED")
}

func TestEnvironmentChoosesSeedAndLength(t *testing.T) {
	t.Setenv("FUZZ_SEED", "17")
	t.Setenv("FUZZ_OPS", "300")
	f := &harnesstest.T{TB: t}
	ringtest.Check(f, func(size int, firstID uint32) ringtest.Ring {
		return newPlain(model.Release{}, size, firstID)
	}, ringtest.Options{Seed: 4})
	require.Equal(t, []string{"ringtest: 400 operations"}, f.Logged)

	failure, _, err := ringtest.Find(newBroken("no-overlap"), ringtest.Options{Seed: 4})
	require.NoError(t, err)
	require.Equal(t, uint64(17), failure.Seed, "the environment comes first")
	_, err = ringtest.Bytes(newBroken("no-overlap"), ringtest.Options{Release: "1.0"}, 0, 1)
	require.ErrorContains(t, err, "no release of vLLM")
}
