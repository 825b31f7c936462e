package main

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/bench/internal/policy"
)

const gib = 1 << 30

func TestTracesAreReproducible(t *testing.T) {
	same := func(a, b prompt) bool {
		return slices.EqualFunc(a, b, func(x, y *policy.Item) bool {
			return x.Key == y.Key && x.Size == y.Size && x.Cost == y.Cost
		})
	}
	for _, w := range workloads {
		a, b, c := w.trace(1, 500), w.trace(1, 500), w.trace(2, 500)
		require.Len(t, a, 500)
		require.True(t, slices.EqualFunc(a, b, same), "%s: another trace for the same seed", w.name)
		require.False(t, slices.EqualFunc(a, c, same), "%s: the same trace for another seed", w.name)
	}
}

// Each part is the child of the one in front of it, prompts share prefixes, and some parts never return.
func TestPromptsAreChains(t *testing.T) {
	for _, w := range workloads {
		uses := map[*policy.Item]int{}
		ids := map[int32]*policy.Item{}
		for _, p := range w.trace(3, 2000) {
			var parent *policy.Item
			for _, it := range p {
				require.Same(t, parent, it.Parent, w.name)
				parent = it
				uses[it]++
				require.Equal(t, layout.Groups[0].Bytes(), it.Size)
				require.True(t, parent.Parent == nil || parent.Cost > parent.Parent.Cost, "what is further behind costs more")
				if ids[it.ID] == nil {
					ids[it.ID] = it
				}
				require.Same(t, ids[it.ID], it)
			}
		}
		counts := slices.Collect(maps.Values(uses))
		require.Equal(t, 1, slices.Min(counts), w.name)
		require.Greater(t, slices.Max(counts), 100, w.name)
	}
}

// What is found of a prompt is the prefix that was there, and there are never more bytes than fit. Those that know
// parents have no child without its parent, and of a prompt they have a prefix at its end: all of it if it fits, and if
// they store everything.
func TestContendersKeepPrefixes(t *testing.T) {
	const capacity = 4 * gib // 128 chunks
	for _, w := range workloads {
		prompts := w.trace(4, 600)
		all := distinct(prompts)
		for i, c := range contenders {
			got := c.make(flat(prompts), capacity)
			full, cut := false, false
			for n, p := range prompts {
				want := prefix(got, p)
				require.Equal(t, want, got.use(p), "%s, %s: prompt %d", w.name, c.name, n)
				require.LessOrEqual(t, got.Used(), int64(capacity))
				full = full || got.Used() > capacity*3/4
				if i < lru {
					continue
				}
				there := prefix(got, p)
				require.GreaterOrEqual(t, there, want, "what is in front of what is stored stays")
				require.False(t, slices.ContainsFunc(p[there:], got.Has), "%s, %s: a chunk behind one that is absent", w.name, c.name)
				if cut = cut || there < len(p); len(p) <= 128 && c.name != "learned, admits" {
					require.Len(t, p, there)
				}
				if n%100 > 0 {
					continue
				}
				var bytes int64
				for _, it := range all {
					if got.Has(it) {
						bytes += it.Size
						require.True(t, it.Parent == nil || got.Has(it.Parent), "%s, %s: a child without its parent",
							w.name, c.name)
					}
				}
				require.Equal(t, bytes, got.Used())
			}
			require.True(t, full, "%s, %s", w.name, c.name)
			if i >= lru && w.name == "documents" {
				require.True(t, cut, "some do not fit")
			}
		}
	}
}

func prefix(c cache, p prompt) (n int) {
	for n < len(p) && c.Has(p[n]) {
		n++
	}
	return n
}

// TestPromptThatDoesNotFit: where chunks know no parents, a prompt that is longer than the cache costs its own head, and
// then nothing is found of it. LMCache's server refuses what has no room, and keeps the head.
func TestPromptThatDoesNotFit(t *testing.T) {
	d := &drawer{rng: rand.New(rand.NewPCG(1, 1))}
	long := d.extend(nil, 23)
	capacity := 20 * long[0].Size
	found := map[string]int{}
	for _, c := range contenders {
		got := c.make(append(slices.Clone(long), long...), capacity)
		require.Zero(t, got.use(long))
		found[c.name] = got.use(long)
	}
	require.Zero(t, found["LRU of chunks"])
	require.Equal(t, 13, found["LMCache 0.5.6"], "two stores of 8, and a fifth of 16 goes")
	require.Equal(t, 20, found["LRU"])
	require.Equal(t, 20, found["learned"])
	require.Equal(t, 20, found["oracle"])
}

func distinct(prompts []prompt) []*policy.Item {
	seen := map[*policy.Item]bool{}
	var all []*policy.Item
	for _, it := range flat(prompts) {
		if !seen[it] {
			seen[it] = true
			all = append(all, it)
		}
	}
	return all
}

// With room for everything only the first use of a part is a miss, and the bound is reached.
func TestRoomForAll(t *testing.T) {
	for _, w := range workloads {
		prompts := w.trace(5, 300)
		uses := flat(prompts)
		want := 1 - float64(len(distinct(prompts)))/float64(len(uses))
		for _, c := range contenders {
			require.InDelta(t, want, replay(prompts, c.make(uses, 1<<50)).tokens, 1e-9, "%s, %s", w.name, c.name)
		}
		require.InDelta(t, want, bound(uses, 1<<50).tokens, 1e-9, w.name)
	}
}

// The learned rule saves more than LRU where prompts share much, and nearly as much elsewhere; more than LMCache's server
// everywhere. compare itself fails if a rule exceeds the bound.
func TestLearnedBesideLRU(t *testing.T) {
	least := map[string]float64{"system-prompts": 0.05, "rag": 0.05, "conversations": -0.01, "documents": -0.03, "mixed": 0}
	for _, w := range workloads {
		for _, g := range []float64{8, 24} {
			r, err := compare(w, g, [][]prompt{w.trace(1, 2000), w.trace(2, 2000)})
			require.NoError(t, err)
			require.GreaterOrEqual(t, r.more, least[w.name], "%s, %g GiB", w.name, g)
			require.Greater(t, r.results[learned].time, r.results[1].time+0.01, "%s, %g GiB", w.name, g)
			for i, x := range r.results[:lru+1] {
				require.Positive(t, x.tokens)
				require.Less(t, x.tokens, r.results[len(contenders)-1].tokens, "%s, %g GiB: %s", w.name, g, contenders[i].name)
			}
		}
	}
}

func TestLearnedIsTheProducts(t *testing.T) {
	require.Equal(t, "LRU", contenders[lru].name)
	require.Equal(t, "learned", contenders[learned].name)
	require.Equal(t, "oracle", contenders[len(contenders)-1].name)
}

// liar finds everything.
type liar struct{ cache }

func (liar) use(p prompt) int { return len(p) }

func TestBoundIsChecked(t *testing.T) {
	prompts := workloads[0].trace(6, 300)
	uses := flat(prompts)
	const capacity = 12 * gib
	got := replay(prompts, liar{contenders[0].make(uses, capacity)})
	require.ErrorContains(t, checkBound([]result{got, bound(uses, capacity)}), "LRU of chunks finds")
}

func TestBoundIsCheckedByBothMeasures(t *testing.T) {
	require.NoError(t, checkBound([]result{{0.4, 0.2}, {0.4, 0.2}}))
	require.Error(t, checkBound([]result{{0.5, 0.2}, {0.4, 0.2}}))
	require.Error(t, checkBound([]result{{0.4, 0.3}, {0.4, 0.2}}))

	honest := contenders[0]
	defer func() { contenders[0] = honest }()
	contenders[0].make = func(u []*policy.Item, c int64) cache { return liar{honest.make(u, c)} }
	_, err := compare(workloads[0], 12, [][]prompt{workloads[0].trace(1, 300)})
	require.ErrorContains(t, err, "the bound is")
}

// What a row has beside LRU is the least over the seeds.
func TestLeastBesideLRU(t *testing.T) {
	w := workloads[0]
	traces := [][]prompt{w.trace(1, 1000), w.trace(2, 1000), w.trace(3, 1000)}
	all, err := compare(w, 12, traces)
	require.NoError(t, err)
	least := 1.0
	for _, one := range traces {
		r, err := compare(w, 12, [][]prompt{one})
		require.NoError(t, err)
		least = min(least, r.more)
	}
	require.InDelta(t, least, all.more, 1e-12)
}

func TestReport(t *testing.T) {
	o := options{Seed: 1, Seeds: 2, Prompts: 300, GiB: []float64{12, 24}, Out: filepath.Join(t.TempDir(), "results")}
	require.NoError(t, o.Validate())
	require.NoError(t, run(o))
	text, err := os.ReadFile(filepath.Join(o.Out, "tiers.md"))
	require.NoError(t, err)
	for _, want := range []string{"| rag | 12 |", "| rag | 24 |", "| conversations | 24 |", "| bound |",
		"| learned |"} {
		require.Contains(t, string(text), want)
	}
	for _, w := range workloads {
		svg, err := os.ReadFile(filepath.Join(o.Out, "tiers-hit-rate-"+w.name+".svg"))
		require.NoError(t, err)
		require.Equal(t, 1, bytes.Count(svg, []byte(">"+boundName+"<")))
		require.Equal(t, 2*(len(contenders)+1), bytes.Count(svg, []byte("<circle")), "points")
	}
	again := o
	again.Out = filepath.Join(t.TempDir(), "results")
	require.NoError(t, run(again))
	other, err := os.ReadFile(filepath.Join(again.Out, "tiers.md"))
	require.NoError(t, err)
	require.Equal(t, string(text), string(other), "the same seeds, the same table")
	o.Seeds = 0
	require.Error(t, o.Validate())
}
