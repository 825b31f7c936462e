package lrutest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/internal/harness"
)

// Exhaust tests every history of Options.Depth operations on a cache of Options.Capacity bytes
// with three keys. Each operation more takes 15 times as long. What fails is minimized.
func Exhaust(t testing.TB, n New, o Options) {
	t.Helper()
	if o.Depth == 0 {
		o.Depth = 4
	}
	if o.Capacity == 0 {
		o.Capacity = 3
	}
	p, err := newPlan(n, o)
	if err != nil {
		t.Fatalf("lrutest: %v", err)
	}
	creation := map[string]any{"lru": "l", "capacity": o.Capacity}
	if o.GrowAnew {
		creation["grow_anew"] = true
	}
	begin := []fuzz.Op{{Name: "lru.new", Args: creation}}
	histories, f := p.everyHistory(begin, p.alphabet(), o.Depth)
	harness.Report(t, "lrutest", fmt.Sprintf("%d histories of up to %d operations", histories, o.Depth), f, nil)
}

// everyHistory tests begin, and that followed by each sequence of up to n operations of the
// alphabet. Of each it checks the last operation, since the others were the last of shorter ones.
func (p *plan) everyHistory(begin, alphabet []fuzz.Op, n int) (histories int, f *fuzz.Failure) {
	if f := p.testFrom(len(begin)-1, begin); f != nil {
		return 1, fuzz.Shrink(slices.Clone(begin), f, p.test)
	}
	if n == 0 {
		return 1, nil
	}
	for _, op := range alphabet {
		more, f := p.everyHistory(append(slices.Clip(begin), op), alphabet, n-1)
		if histories += more; f != nil {
			return histories, f
		}
	}
	return histories, nil
}

// alphabet are the operations of Exhaust, as far as the cache has them. Puts with two sizes, and
// one that never fits, have three keys; the others need one or two to reach every kind of place.
func (p *plan) alphabet() (out []fuzz.Op) {
	missing := without(p.new(1))
	add := func(name string, args map[string]any) {
		if !slices.Contains(missing, name) {
			args["lru"] = "l"
			out = append(out, fuzz.Op{Name: name, Args: args})
		}
	}
	for _, key := range []string{"a", "b", "c"} {
		for size := range 2 {
			add("lru.put", map[string]any{"key": key, "size": size + 1})
		}
	}
	add("lru.put", map[string]any{"key": "a", "size": int(p.Capacity) + 1})
	for _, key := range []string{"a", "b"} {
		add("lru.get", map[string]any{"key": key})
	}
	for _, name := range []string{"lru.touch", "lru.pop", "lru.pin"} {
		add(name, map[string]any{"key": "a"})
	}
	add("lru.popitem", map[string]any{})
	add("lru.popitem", map[string]any{"remove_pinned": true})
	add("lru.clear", map[string]any{})
	return out
}
