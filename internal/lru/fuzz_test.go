package lru_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/generate"
	"github.com/ringcache/ringcache/fuzz/lrutest"
	"github.com/ringcache/ringcache/fuzz/model"
	"github.com/ringcache/ringcache/internal/lru"
)

// tested is a Cache as lrutest wants it.
type tested struct{ *lru.Cache[[]byte] }

func newTested(anew bool) lrutest.New {
	return func(capacity float64) lrutest.Cache {
		return tested{lru.New(capacity, lru.Options[[]byte]{GrowAnew: anew})}
	}
}

func (c tested) Put(key string, value []byte) bool {
	return c.Cache.Put(key, value, int64(len(value))) == nil
}

func (c tested) Remove(key string) bool {
	_, ok := c.Pop(key)
	return ok
}

func (c tested) Entries() (out []lrutest.Entry) {
	if err := c.CheckSettled(); err != nil {
		panic(err)
	}
	for key, e := range c.All() {
		out = append(out, lrutest.Entry{Key: key, Size: e.Size, Pinned: e.Pinned})
	}
	return out
}

func (c tested) Counts() (hits, total int64) { return c.Stats() }

func TestCacheIsVLLMs(t *testing.T) {
	for _, anew := range []bool{false, true} {
		o := lrutest.Options{Release: "0.33.0", GrowAnew: anew}
		t.Run(fmt.Sprintf("random, grow anew %t", anew), func(t *testing.T) { lrutest.Check(t, newTested(anew), o) })
	}
	t.Run("every history", func(t *testing.T) { lrutest.Exhaust(t, newTested(false), lrutest.Options{Release: "0.33.0"}) })
	t.Run("rapid", func(t *testing.T) {
		rapid.Check(t, lrutest.Machine(newTested(false), lrutest.Options{Release: "0.33.0"}))
	})
}

func FuzzLRU(f *testing.F) { lrutest.Fuzz(f, newTested(false), lrutest.Options{Release: "0.33.0"}) }

// haunted is a Cache that touches as vLLM did up to 0.23.
type haunted struct{ cache *lru.Cache[struct{}] }

// do performs an operation and replies with what is there then.
func (h *haunted) do(op fuzz.Op) fuzz.Reply {
	key, _ := op.Args["key"].(string)
	size, _ := op.Args["size"].(int64)
	switch op.Name {
	case "lru.new":
		anew, _ := op.Args["grow_anew"].(bool)
		h.cache = lru.New(op.Args["capacity"].(float64), lru.Options[struct{}]{GrowAnew: anew})
	case "lru.put":
		err := h.cache.Put(key, struct{}{}, size)
		switch {
		case errors.Is(err, lru.ErrHang):
			return fuzz.Reply{Kind: "hang"}
		case errors.Is(err, lru.ErrTooLarge):
			return fuzz.Reply{Kind: "too_large"}
		case err != nil:
			return fuzz.Reply{Kind: "invalid"}
		}
	case "lru.touch":
		h.cache.TouchGhost(key)
	case "lru.get":
		h.cache.Get(key)
	case "lru.pop":
		h.cache.Pop(key)
	case "lru.pin":
		if !h.cache.Pin(key) {
			return fuzz.Reply{Kind: "invalid"}
		}
	}
	order := []string{}
	for k := range h.cache.All() {
		order = append(order, k)
	}
	return fuzz.Reply{Fields: map[string]any{"order": order, "size": h.cache.Size()}}
}

// TestGhostsAreVLLMs: a touch of an absent key leaves the same behind as in vLLM up to 0.23, and a
// put is refused where vLLM never returns, and nowhere else.
func TestGhostsAreVLLMs(t *testing.T) {
	release, err := model.Lookup("0.12.0")
	require.NoError(t, err)
	generator := generate.LRU(generate.LRUOptions{Without: []string{
		"lru.put_if_fits", "lru.has", "lru.clear", "lru.popitem", "lru.stat", "lru.close", "lru.state",
	}})
	hangs := 0
	test := func(ops []fuzz.Op) *fuzz.Failure {
		vllm, ours := model.NewLRU(release, model.CacheOptions{Upstream: true}), &haunted{}
		for i, op := range ops {
			if i > 0 && op.Name == "lru.new" || i == 0 && op.Name != "lru.new" {
				return nil // only the first is a cache
			}
			want, err := vllm.Do([]fuzz.Op{op, {Name: "lru.state", Args: map[string]any{"lru": "l"}}})
			require.NoError(t, err)
			got := ours.do(op)
			if want[0].Kind != got.Kind || want[0].Kind == "" && (!want[1].Equal(got, "order") || !want[1].Equal(got, "size")) {
				return &fuzz.Failure{Invariant: "difference", Err: fmt.Errorf("vLLM %s, then %s; ours %s", want[0], want[1], got), Ops: ops[:i+1]}
			}
			if got.Kind == "hang" {
				hangs++
				return nil
			}
		}
		return nil
	}
	failure, done := fuzz.Find(fuzz.Search{Ops: 20000, Length: 60}, generator, test)
	if failure != nil {
		t.Fatal(failure)
	}
	require.Greater(t, hangs, 50)
	t.Logf("%d operations, %d times vLLM would not have returned", done, hangs)
}
