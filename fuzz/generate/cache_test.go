package generate_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/generate"
	"github.com/ringcache/ringcache/fuzz/model"
)

// cacheReleases are those between which the caches differ.
var cacheReleases = []string{"0.11.0", "0.12.0", "0.14.0", "0.24.0", "0.28.0", "0.29.0", "0.31.0", "0.33.0"}

// What the generators make for vLLM itself contains nothing that the release does not have, and
// nothing from which it never returns.
func TestCachesForUpstream(t *testing.T) {
	for _, version := range cacheReleases {
		t.Run(version, func(t *testing.T) {
			r, err := model.Lookup(version)
			require.NoError(t, err)
			o := model.CacheOptions{Upstream: true}
			ghosts := 0
			for seed := range uint64(10) {
				for _, c := range []struct {
					make   fuzz.Generator
					system fuzz.System
				}{
					{generate.LRU(generate.LRUOptions{Release: r, Upstream: true}), model.NewLRU(r, o)},
					{generate.Pair(generate.PairOptions{Release: r, Upstream: true}), model.NewPair(r, o)},
				} {
					ops := c.make(fuzz.FromSeed(seed), 300)
					require.LessOrEqual(t, len(ops), 300)
					require.Equal(t, fuzz.Format(ops), fuzz.Format(c.make(fuzz.FromSeed(seed), 300)))
					replies, err := c.system.Do(ops)
					require.NoError(t, err)
					for i, reply := range replies {
						switch reply.Kind {
						case "hang":
							t.Fatal(ops[i].Line())
						case "unsupported": // an end that does not have the operation
							require.Contains(t, []string{"pair.update", "pair.features"}, ops[i].Name, ops[i].Line())
						}
						if ops[i].Name == "lru.popitem" && reply.Kind == "" && reply.Fields["size"] == int64(0) {
							ghosts++
						}
					}
				}
			}
			t.Logf("%d times the oldest had no bytes, or no value", ghosts)
		})
	}
}

func TestCachesEndWithTheirChoices(t *testing.T) {
	for _, generator := range []fuzz.Generator{generate.LRU(generate.LRUOptions{}),
		generate.Pair(generate.PairOptions{})} {
		ops := generator(fuzz.FromBytes([]byte("some bytes of a fuzzer, of which few are enough")), 1000)
		require.NotEmpty(t, ops)
		require.Less(t, len(ops), 60)
		back, err := fuzz.Parse(fuzz.Format(ops))
		require.NoError(t, err)
		require.Equal(t, fuzz.Format(ops), fuzz.Format(back))
	}
}

// TestLRUFindsTheBorders counts what a run comes across.
func TestLRUFindsTheBorders(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(20) {
		r, err := model.Lookup("0.33.0")
		require.NoError(t, err)
		m := model.NewLRU(r, model.CacheOptions{})
		do := func(op fuzz.Op) fuzz.Reply {
			replies, err := m.Do([]fuzz.Op{op})
			require.NoError(t, err)
			return replies[0]
		}
		capacity := 0.0
		for _, op := range generate.LRU(generate.LRUOptions{})(fuzz.FromSeed(seed), 300) {
			state := fuzz.Op{Name: "lru.state", Args: map[string]any{"lru": "l"}}
			before := do(state).Fields
			reply := do(op)
			after := do(state).Fields
			key, _ := op.Args["key"].(string)
			size, _ := op.Args["size"].(int64)
			note := func(what string, saw bool) {
				seen[what] += map[bool]int{true: 1}[saw]
			}
			switch op.Name {
			case "lru.new":
				capacity = op.Args["capacity"].(float64)
				note("a fraction", capacity != math.Trunc(capacity))
			case "lru.put", "lru.put_if_fits":
				sizes := before["sizes"].(map[string]int64)
				old, there := sizes[key]
				note("exact fit", reply.Kind == "" && after["size"] == int64(capacity))
				note("one above the capacity", size == int64(capacity)+1)
				note("the capacity alone", size == int64(capacity))
				note("replaced by a larger", there && reply.Kind == "" && size > old)
				note("replaced by a smaller", there && reply.Kind == "" && size < old)
				note("several evicted", len(sizes)-len(after["sizes"].(map[string]int64)) > 1)
				note("room for one less only", !there && before["size"].(int64)+size == int64(capacity)+1)
				note("all pinned", reply.Kind == "invalid" && reply.Upstream != "")
				note("size 0", size == 0)
				note("below 0", size < 0)
			case "lru.popitem":
				note("oldest of an empty cache", len(before["order"].([]string)) == 0)
				note("a pinned one taken", op.Args["remove_pinned"] == true && reply.Kind == "")
			case "lru.touch", "lru.pop", "lru.pin", "lru.get":
				_, there := before["sizes"].(map[string]int64)[key]
				note(op.Name+" of an absent key", !there)
				note(op.Name+" of the newest", there &&
					before["order"].([]string)[len(before["order"].([]string))-1] == key)
				note(op.Name+" of the oldest", there && before["order"].([]string)[0] == key)
			case "lru.stat":
				note("difference of the counts", op.Args["delta"] == true && reply.Fields["total"] != int64(0))
			case "lru.clear":
				note("clear with pinned", len(before["pinned"].([]string)) > 0)
			}
		}
	}
	t.Log(seen)
	for what, n := range seen {
		require.Positive(t, n, what)
	}
}

// TestPairFindsTheBorders counts what a run comes across.
func TestPairFindsTheBorders(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(20) {
		r, err := model.Lookup("0.33.0")
		require.NoError(t, err)
		ops := generate.Pair(generate.PairOptions{Release: r})(fuzz.FromSeed(seed), 400)
		replies, err := model.NewPair(r, model.CacheOptions{}).Do(ops)
		require.NoError(t, err)
		drifted, missed := false, false
		for i, op := range ops {
			kind := replies[i].Kind
			seen[op.Name+" "+kind]++
			switch {
			case op.Name == "pair.clear" && op.Args["pair"] != "processor_only":
				drifted = true
			case op.Name == "pair.features" && kind == "miss":
				missed = true
				if drifted {
					seen["drift, then a miss"]++
				}
			case op.Name == "pair.features" && kind == "" && missed:
				seen["a miss, then an answer"]++
				missed = false
			}
		}
	}
	for _, what := range []string{
		"pair.update ", "pair.update miss", "pair.update invalid", "pair.features ", "pair.features miss",
		"pair.features invalid",
		"pair.invalidate ", "pair.clear ", "pair.touch ", "pair.cached ", "drift, then a miss",
		"a miss, then an answer",
	} {
		require.Positive(t, seen[what], what)
	}
	t.Log(seen)
}
