package main

import (
	"fmt"

	"github.com/ringcache/ringcache/bench/internal/policy"
)

// contender is one column of the table.
type contender struct {
	name string
	make func(uses []*policy.Item, capacity int64) cache
}

// The first is what all are compared with, the last is not a rule. The bound stands behind it.
var contenders = []contender{
	{"LRU", func(_ []*policy.Item, c int64) cache { return tree(policy.NewLRU(), c) }},
	{"FIFO", func(_ []*policy.Item, c int64) cache { return tree(policy.NewFIFO(), c) }},
	{"LFU-DA", func(_ []*policy.Item, c int64) cache { return tree(policy.NewLFUDA(), c) }},
	{"LRFU 1k", func(_ []*policy.Item, c int64) cache { return tree(policy.NewLRFU(1000), c) }},
	{"hyperbolic", func(_ []*policy.Item, c int64) cache { return tree(policy.NewHyperbolic(), c) }},
	{"learned", func(_ []*policy.Item, c int64) cache { return tree(policy.NewLearned(c), c) }},
	{"oracle", func(u []*policy.Item, c int64) cache { return tree(policy.NewOracle(u), c) }},
}

// The places of two of them.
const (
	lru     = 0
	learned = 5
)

// cache is a policy.Scored, whatever its rule.
type cache interface {
	policy.Cache
	Has(it *policy.Item) bool
	Used() int64
}

func tree[E any](r policy.Rule[E], capacity int64) cache {
	s := policy.NewScored(r, capacity)
	s.Exact = true // else a parent would have to wait for its turn, after the last child went
	return s
}

// result is shares of a trace that were found: of its parts and of its tokens.
type result struct{ parts, tokens float64 }

func (r result) add(o result, weight float64) result {
	return result{r.parts + weight*o.parts, r.tokens + weight*o.tokens}
}

// replay looks up each prompt, and puts what was not there. What was found stays meanwhile: all of it is in
// front of what is put.
func replay(prompts []prompt, c cache) (result, error) {
	var found, all result
	for i, p := range prompts {
		for _, it := range p {
			one := result{1, it.Cost}
			all = all.add(one, 1)
			if c.Get(it) {
				found = found.add(one, 1)
				continue
			}
			if c.Put(it); !c.Has(it) {
				return result{}, fmt.Errorf("prompt %d needs more than the cache has: %d tokens", i, p.tokens())
			}
		}
	}
	return result{found.parts / all.parts, found.tokens / all.tokens}, nil
}

func (p prompt) tokens() (n int) {
	for _, it := range p {
		n += int(it.Cost)
	}
	return n
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
	tokens := func(it *policy.Item) float64 { return it.Cost }
	var all float64
	for _, it := range uses {
		all += tokens(it)
	}
	return result{
		policy.Bound(uses, capacity, func(*policy.Item) float64 { return 1 }) / float64(len(uses)),
		policy.Bound(uses, capacity, tokens) / all,
	}
}

// checkBound reports a rule that exceeds the bound, which is the last of the results.
func checkBound(all []result) error {
	last := all[len(all)-1]
	for i, r := range all[:len(all)-1] {
		if r.parts > last.parts+1e-9 || r.tokens > last.tokens+1e-9 {
			return fmt.Errorf("%s finds %.4f of the parts and %.4f of the tokens, the bound is %.4f and %.4f",
				contenders[i].name, r.parts, r.tokens, last.parts, last.tokens)
		}
	}
	return nil
}
