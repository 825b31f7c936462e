package lrutest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/fuzz/internal/harness/harnesstest"
	"github.com/ringcache/ringcache/fuzz/lrutest"
)

// pairPlants are the defects of the foreign pair, each with the invariants that may find it.
var pairPlants = map[string]string{
	"sender forgets eviction":           "lockstep nothing-missing within-capacity",
	"sender does not touch first":       "lockstep nothing-missing nothing-sent-twice",
	"sender never omits":                "nothing-sent-twice lockstep",
	"refused leaves a trace":            "refused-leaves-no-trace",
	"sender ignores drift":              "equal-again requests-end",
	"clear forgets the sender":          "lockstep nothing-missing",
	"receiver notices nothing":          "equal-again requests-end",
	"receiver touches after the insert": "lockstep nothing-missing same-as-vllm",
	"receiver caches in a drift":        "equal-again requests-end lockstep",
	"sends nothing":                     "what-can-is-sent",
	"refuses all":                       "what-can-is-sent",
	"asks for all":                      "what-can-is-sent",
	"panics at a duplicate":             "panic",
	"value of the neighbour":            "right-values",
}

func TestPlantedDefectsOfAPair(t *testing.T) {
	for bug, invariants := range pairPlants {
		t.Run(bug, func(t *testing.T) {
			began := time.Now()
			text := harnesstest.FailureOf(t, func(tb testing.TB) {
				lrutest.CheckPair(tb, newForeignPair(bug), likeVLLM)
			})
			require.NotEmpty(t, text, "not found")
			name := invariantOf(text)
			require.Contains(t, strings.Fields(invariants), name, text)
			again := harnesstest.FailureOf(t, func(tb testing.TB) {
				lrutest.ReplayPair(tb, newForeignPair(bug), likeVLLM, linesOf(text))
			})
			require.Contains(t, again, "lrutest: "+name+":", "what is printed shows it again")
			t.Logf("found in %v\n%s", time.Since(began), text)
		})
	}
}

func TestAPairWithoutDefects(t *testing.T) {
	t.Run("random", func(t *testing.T) { lrutest.CheckPair(t, newForeignPair(""), likeVLLM) })
	t.Run("rapid", func(t *testing.T) { rapid.Check(t, lrutest.MachinePair(newForeignPair(""), likeVLLM)) })
}

// What is not promised can be left out by its name, and a name that there is not is an error.
func TestInvariantsByName(t *testing.T) {
	o := lrutest.Options{Without: []string{"order-is-use"}}
	require.Empty(t, harnesstest.FailureOf(t, func(tb testing.TB) {
		lrutest.Check(tb, newForeign("get does not refresh"), o)
	}))
	o = lrutest.Options{Without: []string{"no-such"}}
	require.Contains(t, harnesstest.FailureOf(t, func(tb testing.TB) {
		lrutest.Check(tb, newForeign(""), o)
	}), `there is no invariant "no-such"`)
	require.Contains(t, harnesstest.FailureOf(t, func(tb testing.TB) {
		lrutest.CheckPair(tb, newForeignPair(""), o)
	}), `there is no invariant "no-such"`)
	o = lrutest.Options{Release: "9.9.9"}
	require.Contains(t, harnesstest.FailureOf(t, func(tb testing.TB) {
		lrutest.Exhaust(tb, newForeign(""), o)
	}), `"9.9.9"`)
}
