package main

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"

	"github.com/ringcache/ringcache/bench/internal/policy"
)

// prompt is what one request looks up, in order: each item but the first is the child of the one in front of
// it.
type prompt []*policy.Item

// workload draws the prompts of a trace.
type workload struct {
	name, title string
	draw        func(d *drawer, prompts int) []prompt
}

var workloads = []workload{
	{"rag", "RAG: prefixes of documents", documents},
	{"conversations", "conversations that share system prompts", conversations},
}

// trace is the same for the same seed.
func (w workload) trace(seed uint64, prompts int) []prompt {
	h := fnv.New64a()
	_, _ = h.Write([]byte(w.name))
	return w.draw(&drawer{rng: rand.New(rand.NewPCG(seed, h.Sum64()))}, prompts)
}

// bytesPerToken is of keys and values in bfloat16 of a model of 32 layers with 8 heads of 128 for them.
const bytesPerToken = 2 * 32 * 8 * 128 * 2

// drawer makes items.
type drawer struct {
	rng  *rand.Rand
	made int32
}

// item makes the next part of a prompt, of least to most tokens. It costs what it has: time by the token.
func (d *drawer) item(parent *policy.Item, least, most int) *policy.Item {
	tokens := least + d.rng.IntN(most-least+1)
	it := &policy.Item{
		ID: d.made, Key: fmt.Sprintf("part-%08d", d.made), Parent: parent,
		Size: int64(tokens) * bytesPerToken, Cost: float64(tokens),
	}
	d.made++
	return it
}

// chain makes n parts, one after the other.
func (d *drawer) chain(parent *policy.Item, n, least, most int) []*policy.Item {
	var all []*policy.Item
	for range n {
		parent = d.item(parent, least, most)
		all = append(all, parent)
	}
	return all
}

// times returns a count of at least 1, whose distribution falls off exponentially.
func (d *drawer) times(mean float64) int { return 1 + int(d.rng.ExpFloat64()*(mean-1)) }

// chunk is the least that a cache keeps, in tokens.
const chunk = 256

// documents are 3000, of 16 pages in the mean, behind one system prompt. A prompt has the pages of a document
// up to one of them, and a question that never returns. Few documents are popular, and in a document the
// pages in front are. Half of the questions are shorter than a chunk, so that no part of the prompt is for
// them.
func documents(d *drawer, prompts int) []prompt {
	const most = 80
	system := d.item(nil, 500, 500)
	all := make([][]*policy.Item, 3000)
	for i := range all {
		all[i] = d.chain(system, min(d.times(16), most), 200, 900)
	}
	pages := make([]*policy.Zipf, most+1) // by the number of pages
	for n := range most {
		pages[n+1] = policy.NewZipf(d.rng, n+1, 0.6)
	}
	popular := policy.NewZipf(d.rng, len(all), 0.9)
	out := make([]prompt, prompts)
	for i := range out {
		doc := all[popular.Rank()]
		doc = doc[:pages[len(doc)].Rank()+1]
		out[i] = append(prompt{system}, doc...)
		if d.rng.IntN(2) == 0 {
			out[i] = append(out[i], d.item(doc[len(doc)-1], chunk, 2*chunk))
		}
	}
	return out
}

// conversations are 400 at once, behind 8 system prompts of different popularity. Each request has the whole
// conversation, and a new turn of user and model. Half of the users leave after one turn, the others after 5
// in the mean, and another one comes. A few users are much more active than the others.
func conversations(d *drawer, prompts int) []prompt {
	type conversation struct {
		parts prompt
		left  int
	}
	systems := make([][]*policy.Item, 8)
	for i := range systems {
		systems[i] = d.chain(nil, 2+d.rng.IntN(5), 700, 1000)
	}
	popular := policy.NewZipf(d.rng, len(systems), 1)
	begin := func() *conversation {
		c := &conversation{append(prompt{}, systems[popular.Rank()]...), 1}
		if d.rng.IntN(2) == 0 {
			c.left = d.times(5)
		}
		return c
	}
	alive := make([]*conversation, 400)
	for i := range alive {
		alive[i] = begin()
	}
	out := make([]prompt, prompts)
	for i := range out {
		at := int(float64(len(alive)) * math.Pow(d.rng.Float64(), 1.5))
		c := alive[at]
		c.parts = append(c.parts, d.item(c.parts[len(c.parts)-1], chunk, 4*chunk))
		out[i] = append(prompt{}, c.parts...)
		if c.left--; c.left == 0 {
			alive[at] = begin()
		}
	}
	return out
}
