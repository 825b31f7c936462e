package lrutest_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/fuzz/lrutest"
)

// trial is a testing.TB that remembers how the test ended.
type trial struct {
	testing.TB
	text string
}

func (t *trial) Helper()             {}
func (t *trial) Name() string        { return "Trial" }
func (t *trial) Logf(string, ...any) {}
func (t *trial) Fatal(args ...any) {
	t.text = fmt.Sprint(args...)
	runtime.Goexit()
}

// try runs a test and returns what it printed when it failed, or "".
func try(t *testing.T, test func(testing.TB)) string {
	n := &trial{TB: t}
	done := make(chan bool)
	go func() {
		defer close(done)
		test(n)
	}()
	<-done
	return n.text
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
			text := try(t, func(tb testing.TB) { lrutest.Check(tb, newForeign(bug), lrutest.Options{}) })
			require.NotEmpty(t, text, "not found")
			name, _, _ := strings.Cut(text, ":")
			require.Contains(t, strings.Fields(invariants), name, text)
			require.Contains(t, text, "-lrutest.seed=")
			t.Logf("found in %v\n%s", time.Since(began), text)
		})
	}
}

func TestACacheWithoutDefects(t *testing.T) {
	t.Run("random", func(t *testing.T) { lrutest.Check(t, newForeign(""), lrutest.Options{}) })
	t.Run("every history", func(t *testing.T) { lrutest.Exhaust(t, newForeign(""), lrutest.Options{}) })
	t.Run("rapid", func(t *testing.T) { rapid.Check(t, lrutest.Machine(newForeign(""), lrutest.Options{})) })
}
