package storetest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/fuzz/storetest"
)

func TestRightStore(t *testing.T) { storetest.Check(t, newTiny(""), storetest.Options{}) }

func TestMachine(t *testing.T) {
	rapid.Check(t, storetest.Machine(newTiny(""), storetest.Options{Length: 60}))
}

func TestEveryHistory(t *testing.T) { storetest.Exhaust(t, newTiny(""), storetest.Options{}) }

// TestExhaustFindsBugs: those that need no long history, with no luck involved.
func TestExhaustFindsBugs(t *testing.T) {
	for _, bug := range []string{"a lookup of what waits is not counted", "a key twice", "a stale handle is served", "an aborted request holds nothing", "ids restart on clear"} {
		t.Run(bug, func(t *testing.T) {
			f, histories := storetest.FindAll(newTiny(bug), storetest.Options{Length: 5})
			require.NotNil(t, f)
			t.Logf("%d histories:\n%v", histories, f)
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
		"a rollback leaves the lease":           {"nothing-stays", "full-needs-a-reason"},
		"an aborted request holds nothing":      {"protected-stays"},
		"an abort lets go":                      {"protected-stays"},
		"ids restart on clear":                  {"ids-never-reused"},
		"full although there is room":           {"full-needs-a-reason", "nothing-stays"},
	} {
		t.Run(bug, func(t *testing.T) {
			begin := time.Now()
			f := storetest.Find(newTiny(bug), storetest.Options{})
			require.NotNil(t, f, "not found")
			require.Contains(t, invariants, f.Invariant, f)
			require.LessOrEqual(t, len(f.Ops), 12, f)
			t.Logf("%s, after %v:\n%v", bug, time.Since(begin).Round(time.Millisecond), f)
		})
	}
}
