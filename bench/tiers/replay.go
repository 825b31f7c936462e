package main

import (
	"fmt"

	"github.com/ringcache/ringcache/bench/internal/policy"
	"github.com/ringcache/ringcache/internal/evict"
)

// contender is one column of the table.
type contender struct {
	name string
	make func(uses []*policy.Item, capacity int64) cache
}

// The last one is not a rule. The bound stands behind it.
var contenders = []contender{
	{"LRU of chunks", func(_ []*policy.Item, c int64) cache { return newChunks(c) }},
	{"LMCache 0.5.6", func(_ []*policy.Item, c int64) cache { return newStock(c) }},
	{"LRU", func(_ []*policy.Item, c int64) cache { return newTree(policy.NewLRU(), c) }},
	{"LFU-DA", func(_ []*policy.Item, c int64) cache { return newTree(policy.NewLFUDA(), c) }},
	{"GDSF", func(_ []*policy.Item, c int64) cache { return newTree(policy.NewGDSF(), c) }},
	{"learned, no costs", func(_ []*policy.Item, c int64) cache { return newTree(free{policy.NewLearned(c)}, c) }},
	{"learned", func(_ []*policy.Item, c int64) cache { return newTree(policy.NewLearned(c), c) }},
	{"learned, admits", func(_ []*policy.Item, c int64) cache {
		t := newTree(policy.NewLearned(c), c)
		t.Admit = 2
		return t
	}},
	{"oracle", func(u []*policy.Item, c int64) cache {
		o := policy.NewOracle(u)
		t := newTree(o, c)
		t.refused = o.Skip
		return t
	}},
}

// The places of two of them.
const (
	lru     = 2
	learned = 6
)

// free is the learned rule for objects whose cost nobody claims.
type free struct{ policy.Learned }

// Add is evict.Policy.AddClaimed.
func (f free) Add(it *policy.Item) *evict.Entry {
	without := *it
	without.Cost = 0
	return f.Learned.Add(&without)
}

// cache is a level with chunks.
type cache interface {
	// use looks up a prompt, returns how many of its first chunks were there, and stores the others, as far as
	// there is room.
	use(p prompt) (found int)
	Has(it *policy.Item) bool
	Used() int64
}

// tree gives up leaves, and nothing in front of what it stores.
type tree[E any] struct {
	*policy.Scored[E]
	refused func() // of a chunk that was not stored; may be nil
}

func newTree[E any](r policy.Rule[E], capacity int64) *tree[E] {
	t := &tree[E]{Scored: policy.NewScored(r, capacity)}
	t.Exact = true // else a parent would have to wait for its turn, after the last child went
	return t
}

func (t *tree[E]) use(p prompt) (found int) {
	for found < len(p) && t.Get(p[found]) {
		found++
	}
	for _, it := range p[found:] {
		if t.Put(it); t.refused != nil && !t.Has(it) {
			t.refused()
		}
	}
	return found
}

// result is shares of a trace that were found: of its tokens, and of the time to compute all of it.
type result struct{ tokens, time float64 }

func (r result) add(o result, weight float64) result {
	return result{r.tokens + weight*o.tokens, r.time + weight*o.time}
}

func replay(prompts []prompt, c cache) result {
	var found, all result
	for _, p := range prompts {
		n := c.use(p)
		for i, it := range p {
			one := result{1, it.Cost}
			all = all.add(one, 1)
			if i < n {
				found = found.add(one, 1)
			}
		}
	}
	return result{found.tokens / all.tokens, found.time / all.time}
}

// flat returns the uses of a trace.
func flat(prompts []prompt) (uses []*policy.Item) {
	for _, p := range prompts {
		uses = append(uses, p...)
	}
	return uses
}

// bound returns shares that no rule can exceed.
func bound(uses []*policy.Item, capacity int64) result {
	time := func(it *policy.Item) float64 { return it.Cost }
	var all float64
	for _, it := range uses {
		all += time(it)
	}
	return result{
		policy.Bound(uses, capacity, func(*policy.Item) float64 { return 1 }) / float64(len(uses)),
		policy.Bound(uses, capacity, time) / all,
	}
}

// checkBound reports a rule that exceeds the bound, which is the last of the results.
func checkBound(all []result) error {
	last := all[len(all)-1]
	for i, r := range all[:len(all)-1] {
		if r.tokens > last.tokens+1e-9 || r.time > last.time+1e-9 {
			return fmt.Errorf("%s finds %.4f of the tokens and %.4f of the time, the bound is %.4f and %.4f",
				contenders[i].name, r.tokens, r.time, last.tokens, last.time)
		}
	}
	return nil
}
