package main

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/ringcache/ringcache/bench/internal/policy"
)

// trace is a synthetic sequence of uses of items.
type trace struct {
	name       string
	deployment string
	uses       []*policy.Item
}

// workload draws a trace of n uses for a cache of so many bytes.
type workload struct {
	name string
	many bool // all families behind one cache
	draw func(d *deployment, n int, capacity int64) []*policy.Item
}

const gib = 1 << 30

var workloads = []workload{
	{"zipf 0.8", false, func(d *deployment, n int, _ int64) []*policy.Item { return zipfian(d, n, 0.8) }},
	{"zipf 1.0", false, func(d *deployment, n int, _ int64) []*policy.Item { return zipfian(d, n, 1.0) }},
	{"zipf 1.0, all", true, func(d *deployment, n int, _ int64) []*policy.Item { return zipfian(d, n, 1.0) }},
	{"zipf + scans", false, scans},
	{"agents", false, agents},
	{"hot set + unique", false, hotSet},
	{"drift", false, drift},
	{"video + images", true, mixed},
	{"loop 1.2x", false, loop},
	{"phases", false, phases},
}

// trace is the same for the same seed. The workloads of a seed differ in their
// deployments.
func (w workload) trace(seed uint64, n int, capacity int64) trace {
	h := fnv.New64a()
	_, _ = h.Write([]byte(w.name))
	rng := rand.New(rand.NewPCG(seed, h.Sum64()))
	d := deploy(rng, w.many)
	return trace{w.name, d.String(), w.draw(d, n, capacity)}
}

// catalogue has items of so many GiB in all, within reason.
func catalogue(d *deployment, gibs float64, only func(kind) bool) []*policy.Item {
	n := min(max(int(gibs*gib/d.meanSize(only)), 500), 40000)
	items := make([]*policy.Item, n)
	for i := range items {
		items[i] = d.item(only)
	}
	return items
}

func zipfian(d *deployment, n int, s float64) []*policy.Item {
	items := catalogue(d, 96, nil)
	z := policy.NewZipf(d.rng, len(items), s)
	uses := make([]*policy.Item, n)
	for i := range uses {
		uses[i] = items[z.Rank()]
	}
	return uses
}

// scans interrupts popular items by bursts of items that never return: a batch
// evaluation, pages of documents. Half of the uses are of bursts.
func scans(d *deployment, n int, _ int64) []*policy.Item {
	items := catalogue(d, 64, nil)
	z := policy.NewZipf(d.rng, len(items), 0.9)
	uses := make([]*policy.Item, 0, n)
	for len(uses) < n {
		calm := 500 + d.rng.IntN(3000)
		for range calm {
			uses = append(uses, items[z.Rank()])
		}
		for left := calm; left > 0; left-- { // others go on meanwhile, at a quarter
			if d.rng.IntN(4) == 0 {
				uses = append(uses, items[z.Rank()])
			}
			uses = append(uses, d.item(nil))
		}
	}
	return uses[:n]
}

// agents are many conversations at once; each request shows the last images of
// its conversation and a new one.
func agents(d *deployment, n int, _ int64) []*policy.Item {
	type conversation struct {
		window []*policy.Item
		keep   int
		left   int
	}
	alive := make([]*conversation, max(8, int(3*gib/5/d.meanSize(image))))
	alive = alive[:min(len(alive), 1500)]
	begin := func() *conversation {
		return &conversation{keep: 3 + d.rng.IntN(6), left: 1 + int(d.rng.ExpFloat64()*20)}
	}
	for i := range alive {
		alive[i] = begin()
	}
	uses := make([]*policy.Item, 0, n)
	for len(uses) < n {
		// The more active ones have lower indices.
		i := int(float64(len(alive)) * math.Pow(d.rng.Float64(), 1.5))
		c := alive[i]
		c.window = append(c.window, d.item(image))
		if len(c.window) > c.keep {
			c.window = slices.Delete(c.window, 0, 1)
		}
		uses = append(uses, c.window...)
		if c.left--; c.left == 0 {
			alive[i] = begin()
		}
	}
	return uses[:n]
}

// hotSet has few-shot examples of some prompts in almost every request, and
// images of users that come once or are asked about again at once.
func hotSet(d *deployment, n int, _ int64) []*policy.Item {
	prompts := make([][]*policy.Item, 12)
	for i := range prompts {
		for range 2 + d.rng.IntN(6) {
			prompts[i] = append(prompts[i], d.item(image))
		}
	}
	z := policy.NewZipf(d.rng, len(prompts), 0.7)
	var recent []*policy.Item
	uses := make([]*policy.Item, 0, n)
	for len(uses) < n {
		if d.rng.IntN(10) > 0 {
			uses = append(uses, prompts[z.Rank()]...)
		}
		for range 1 + d.rng.IntN(8) {
			if len(recent) > 0 && d.rng.IntN(5) == 0 {
				uses = append(uses, recent[d.rng.IntN(len(recent))])
				continue
			}
			it := d.item(nil)
			recent = append(recent, it)
			recent = recent[max(0, len(recent)-50):]
			uses = append(uses, it)
		}
	}
	return uses[:n]
}

// drift is zipfian with ranks that change: all the time a few items trade
// places, and now and then a part of the popular ones is replaced.
func drift(d *deployment, n int, _ int64) []*policy.Item {
	items := catalogue(d, 96, nil)
	z := policy.NewZipf(d.rng, len(items), 1.0)
	uses := make([]*policy.Item, n)
	for i := range uses {
		if i%20 == 0 {
			a, b := z.Rank(), d.rng.IntN(len(items))
			items[a], items[b] = items[b], items[a]
		}
		if i%20000 == 19999 {
			for r := range min(200, len(items)/4) {
				b := d.rng.IntN(len(items))
				items[r], items[b] = items[b], items[r]
			}
		}
		uses[i] = items[z.Rank()]
	}
	return uses
}

// mixed has large videos with popularity of their own beside small images.
func mixed(d *deployment, n int, _ int64) []*policy.Item {
	small := catalogue(d, 32, image)
	large := catalogue(d, 64, func(k kind) bool { return video(k) && k.mib > 10 })
	zs, zl := policy.NewZipf(d.rng, len(small), 0.9), policy.NewZipf(d.rng, len(large), 0.9)
	uses := make([]*policy.Item, n)
	for i := range uses {
		if d.rng.IntN(6) == 0 {
			uses[i] = large[zl.Rank()]
		} else {
			uses[i] = small[zs.Rank()]
		}
	}
	return uses
}

// loop uses items of 1.2 times the cache's bytes in turn, with a few strays.
func loop(d *deployment, n int, capacity int64) []*policy.Item {
	var items []*policy.Item
	var bytes int64
	for bytes < capacity*12/10 {
		it := d.item(nil)
		items = append(items, it)
		bytes += it.Size
	}
	uses := make([]*policy.Item, n)
	at := 0
	for i := range uses {
		if d.rng.IntN(50) == 0 {
			uses[i] = d.item(nil)
			continue
		}
		uses[i] = items[at%len(items)]
		at++
	}
	return uses
}

// phases are agents, then a loop, then popular items: what was learned of one
// is wrong for the next.
func phases(d *deployment, n int, capacity int64) []*policy.Item {
	uses := agents(d, n/3, capacity)
	uses = append(uses, loop(d, n/3, capacity)...)
	return append(uses, zipfian(d, n-len(uses), 1.0)...)
}
