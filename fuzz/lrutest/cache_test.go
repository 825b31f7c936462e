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

// likeVLLM are the options of caches that do as vLLM's.
var likeVLLM = lrutest.Options{Release: "0.33.0"}

// invariantOf returns the invariant that a report names.
func invariantOf(report string) string {
	_, after, _ := strings.Cut(report, ":\n")
	name, _, _ := strings.Cut(after, ":")
	return name
}

// linesOf returns the operations of a report.
func linesOf(report string) string {
	var lines []string
	for _, line := range strings.Split(report, "\n") {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "{") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// plants are the defects of the foreign cache, each with the invariants that may find it.
var plants = map[string]string{
	"evicts newest":                  "evicts-the-oldest order-is-use what-fits-is-stored",
	"size not subtracted on replace": "size-is-the-sum",
	"size not subtracted on remove":  "size-is-the-sum",
	"get does not refresh":           "order-is-use",
	"pinned evicted":                 "pinned-stay evicts-the-oldest",
	"ghost touch":                    "absent-changes-nothing",
	"hit counted twice":              "counts-right",
	"miss counted as a hit":          "counts-right",
	"too large empties it":           "refused-changes-nothing panic",
	"old value stays":                "value-is-the-last size-is-the-sum",
	"one byte too many":              "never-above-capacity",
	"evicts one more":                "evicts-no-more-than-needed",
	"evicts in place":                "refused-changes-nothing pinned-stay same-as-vllm",
	"touch makes the oldest":         "order-is-use",
	"clear keeps the size":           "size-is-the-sum",
	"panics on replace":              "panic",
}

func TestPlantedDefectsOfACache(t *testing.T) {
	for bug, invariants := range plants {
		t.Run(bug, func(t *testing.T) {
			began := time.Now()
			text := harnesstest.FailureOf(t, func(tb testing.TB) { lrutest.Check(tb, newForeign(bug), likeVLLM) })
			require.NotEmpty(t, text, "not found")
			name := invariantOf(text)
			require.Contains(t, strings.Fields(invariants), name, text)
			require.Contains(t, text, "again: FUZZ_SEED=")
			again := harnesstest.FailureOf(t, func(tb testing.TB) {
				lrutest.Replay(tb, newForeign(bug), likeVLLM, linesOf(text))
			})
			require.Contains(t, again, "lrutest: "+name+":", "what is printed shows it again")
			t.Logf("found in %v\n%s", time.Since(began), text)
		})
	}
}

func TestACacheWithoutDefects(t *testing.T) {
	t.Run("random", func(t *testing.T) { lrutest.Check(t, newForeign(""), likeVLLM) })
	t.Run("every history", func(t *testing.T) { lrutest.Exhaust(t, newForeign(""), likeVLLM) })
	t.Run("rapid", func(t *testing.T) { rapid.Check(t, lrutest.Machine(newForeign(""), likeVLLM)) })
}
