package lrutest

import (
	"slices"
	"testing"

	"github.com/ringcache/ringcache/fuzz"
)

// Exhaust tests every history of Options.Length operations (4 if 0) on a cache of
// Options.Capacity bytes (3 if 0) with three keys. Each operation more takes 15 times as long.
func Exhaust(t testing.TB, create func(capacity float64) Cache, o Options) {
	t.Helper()
	if o.Length == 0 {
		o.Length = 4
	}
	if o.Capacity == 0 {
		o.Capacity = 3
	}
	s, err := newSubject(create, o)
	if err != nil {
		t.Fatal(err)
	}
	creation := map[string]any{"lru": "l", "capacity": o.Capacity}
	if o.GrowAnew {
		creation["grow_anew"] = true
	}
	histories, f := s.everyHistory([]fuzz.Op{{Name: "lru.new", Args: creation}}, s.alphabet(), o.Length)
	if f != nil {
		t.Fatal(f)
	}
	t.Logf("%d histories of %d operations", histories, o.Length)
}

// everyHistory tests begin, and that followed by each sequence of up to n operations of the
// alphabet. Of each it checks the last operation, since the others were the last of shorter ones.
func (s *subject) everyHistory(begin, alphabet []fuzz.Op, n int) (histories int, f *fuzz.Failure) {
	if f := s.testFrom(len(begin)-1, begin); f != nil {
		return 1, fuzz.Shrink(slices.Clone(begin), f, s.test)
	}
	if n == 0 {
		return 1, nil
	}
	for _, op := range alphabet {
		more, f := s.everyHistory(append(slices.Clip(begin), op), alphabet, n-1)
		if histories += more; f != nil {
			return histories, f
		}
	}
	return histories, nil
}

// alphabet are the operations of Exhaust, as far as the cache has them. Puts with two sizes, and
// one that never fits, have three keys; the others need one or two to reach every kind of place.
func (s *subject) alphabet() (out []fuzz.Op) {
	missing := without(s.create(1))
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
	add("lru.put", map[string]any{"key": "a", "size": int(s.options.Capacity) + 1})
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
