package storetest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/internal/harness/harnesstest"
	"github.com/ringcache/ringcache/fuzz/storetest"
)

func TestRightStore(t *testing.T) { storetest.Check(t, newTiny(""), storetest.Options{}) }

func TestMachine(t *testing.T) {
	rapid.Check(t, storetest.Machine(newTiny(""), storetest.Options{Length: 60}))
}

func TestEveryHistory(t *testing.T) { storetest.Exhaust(t, newTiny(""), storetest.Options{}) }

// TestExhaustFindsBugs: those that need no long history, with no luck involved.
func TestExhaustFindsBugs(t *testing.T) {
	for _, bug := range []string{"a lookup of what waits is not counted", "a key twice", "a stale handle is served",
		"an aborted request holds nothing", "ids restart on clear"} {
		t.Run(bug, func(t *testing.T) {
			report := harnesstest.FailureOf(t, func(t testing.TB) {
				storetest.Exhaust(t, newTiny(bug), storetest.Options{Depth: 5})
			})
			require.NotEmpty(t, report)
			require.NotContains(t, report, "seed", "none made it")
			t.Log(report)
		})
	}
}

func FuzzStore(f *testing.F) { storetest.Fuzz(f, newTiny(""), storetest.Options{}) }

// TestPlantedBugs: each is found, by the invariant that is about it, with few operations.
func TestPlantedBugs(t *testing.T) {
	for bug, invariants := range map[string][]string{
		"evicts what is leased":                 {"protected-stays"},
		"one read is enough":                    {"protected-stays"},
		"a lookup of what waits is not counted": {"counts", "protected-stays"},
		"a key twice":                           {"keys-unique"},
		"a stale handle is served":              {"own-bytes", "forged-noticed"},
		"a refused put leaves the key":          {"refused-changes-nothing"},
		"a rollback leaves a use":               {"rollback-exact"},
		"a rollback leaves the lease":           {"free-can-go", "nothing-stays", "full-needs-a-reason"},
		"an aborted request holds nothing":      {"protected-stays"},
		"an abort lets go":                      {"protected-stays"},
		"ids restart on clear":                  {"ids-never-reused"},
		"full although there is room":           {"full-needs-a-reason", "nothing-stays"},
	} {
		t.Run(bug, func(t *testing.T) {
			begin := time.Now()
			f, _, err := storetest.Find(newTiny(bug), storetest.Options{})
			require.NoError(t, err)
			require.NotNil(t, f, "not found")
			require.Contains(t, invariants, f.Invariant, f)
			require.LessOrEqual(t, len(f.Ops), 12, f)
			t.Logf("%s, after %v:\n%v", bug, time.Since(begin).Round(time.Millisecond), f)
			again := harnesstest.FailureOf(t, func(t testing.TB) {
				storetest.Replay(t, newTiny(bug), storetest.Options{}, fuzz.Format(f.Ops))
			})
			require.Contains(t, again, "storetest: "+f.Invariant+":", "what is printed shows it again")
		})
	}
}

func TestOptions(t *testing.T) {
	for what, check := range map[string]func(t testing.TB){
		`no invariant "overlap"`: func(t testing.TB) {
			storetest.Check(t, newTiny(""), storetest.Options{Without: []string{"overlap"}})
		},
		"no release of vLLM": func(t testing.TB) {
			storetest.Exhaust(t, newTiny(""), storetest.Options{Release: "1.0"})
		},
		"ring.new is none of the operations": func(t testing.TB) {
			storetest.Replay(t, newTiny(""), storetest.Options{}, `{"op":"ring.new"}`)
		},
		"again: FUZZ_SEED=": func(t testing.TB) { storetest.Check(t, newTiny("a key twice"), storetest.Options{}) },
	} {
		t.Run(what, func(t *testing.T) { require.Contains(t, harnesstest.FailureOf(t, check), what) })
	}
	o := storetest.Options{Without: []string{"nothing-stays", "free-can-go", "full-needs-a-reason"}, Ops: 3000}
	require.Empty(t, harnesstest.FailureOf(t, func(t testing.TB) {
		storetest.Check(t, newTiny("a rollback leaves the lease"), o)
	}), "left out")
}
