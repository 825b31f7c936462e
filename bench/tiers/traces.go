package main

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"

	"github.com/ringcache/ringcache/bench/internal/policy"
	"github.com/ringcache/ringcache/kv"
)

// prompt is the chunks that one request looks up, in order: each but the first is the child of the one in front
// of it.
type prompt []*policy.Item

// workload draws the prompts of a trace.
type workload struct {
	name, title string
	draw        func(d *drawer, prompts int) []prompt
}

var workloads = []workload{
	{"system-prompts", "system prompts that requests share", systemPrompts},
	{"conversations", "conversations that share system prompts", conversations},
	{"rag", "RAG: documents in varying order", rag},
	{"documents", "questions about long documents", longDocuments},
	{"mixed", "all of these in turn", mixed},
}

// trace is the same for the same seed.
func (w workload) trace(seed uint64, prompts int) []prompt {
	h := fnv.New64a()
	_, _ = h.Write([]byte(w.name))
	return w.draw(&drawer{rng: rand.New(rand.NewPCG(seed, h.Sum64()))}, prompts)
}

// layout is that of Llama 3 8B in one worker, with LMCache's chunks: 32 MiB each.
var layout = kv.Layout{
	Model: "Llama-3-8B", World: 1, ChunkTokens: 256,
	Groups: []kv.Group{{Layers: 32, Slots: 256, Hidden: 8 * 128, DType: "bfloat16", Planes: 2, BlockTokens: 16}},
}

// drawer makes items.
type drawer struct {
	rng  *rand.Rand
	made int32
}

// extend puts n new chunks behind the chunks of a prompt, which stay as they are.
func (d *drawer) extend(p prompt, n int) prompt {
	p = append(make(prompt, 0, len(p)+n), p...)
	for range n {
		it := &policy.Item{
			ID: d.made, Key: fmt.Sprintf("chunk-%08d", d.made), Size: layout.Groups[0].Bytes(),
			Cost: layout.Cost(0, len(p)).Seconds() * 1e3,
		}
		if len(p) > 0 {
			it.Parent = p[len(p)-1]
		}
		d.made++
		p = append(p, it)
	}
	return p
}

// times returns a count of at least 1, whose distribution falls off exponentially.
func (d *drawer) times(mean float64) int { return 1 + int(d.rng.ExpFloat64()*(mean-1)) }

// systemPrompts are 300, of 1 to 24 chunks, few of which are popular. Behind one of them is a question of 1 to 4
// chunks, which never returns.
func systemPrompts(d *drawer, prompts int) []prompt {
	systems := make([]prompt, 300)
	for i := range systems {
		systems[i] = d.extend(nil, 1+d.rng.IntN(24))
	}
	popular := policy.NewZipf(d.rng, len(systems), 0.9)
	out := make([]prompt, prompts)
	for i := range out {
		out[i] = d.extend(systems[popular.Rank()], 1+d.rng.IntN(4))
	}
	return out
}

// conversations are 400 at once, behind 8 system prompts of different popularity. Each request has the whole
// conversation, and a new turn of user and model. Half of the users leave after one turn, the others after 8
// in the mean, and another one comes. A few users are much more active than the others.
func conversations(d *drawer, prompts int) []prompt {
	type conversation struct {
		parts prompt
		left  int
	}
	systems := make([]prompt, 8)
	for i := range systems {
		systems[i] = d.extend(nil, 2+d.rng.IntN(20))
	}
	popular := policy.NewZipf(d.rng, len(systems), 1)
	begin := func() *conversation {
		c := &conversation{systems[popular.Rank()], 1}
		if d.rng.IntN(2) == 0 {
			c.left = d.times(8)
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
		c.parts = d.extend(c.parts, 1+d.rng.IntN(4))
		out[i] = c.parts
		if c.left--; c.left == 0 {
			alive[at] = begin()
		}
	}
	return out
}

// rag has 500 topics, few of which are popular, behind one system prompt. A topic has 8 documents of 1 to 6
// chunks, which a search ranks for each question anew: a few neighbours change places, and the first 5 are the
// prompt. So a document is found only behind the same ones as before. Half of the questions are as long as a chunk.
func rag(d *drawer, prompts int) []prompt {
	const documents, shown = 8, 5
	type node struct { // of the tree of all prompts of a topic
		prompt prompt
		behind map[int]*node // by the number of the document
	}
	system := d.extend(nil, 2)
	sizes := make([][documents]int, 500)
	roots := make([]*node, len(sizes))
	for i := range sizes {
		for j := range sizes[i] {
			sizes[i][j] = 1 + d.rng.IntN(6)
		}
		roots[i] = &node{system, map[int]*node{}}
	}
	popular := policy.NewZipf(d.rng, len(sizes), 0.9)
	out := make([]prompt, prompts)
	for i := range out {
		topic := popular.Rank()
		ranking := [documents]int{0, 1, 2, 3, 4, 5, 6, 7}
		for range d.rng.IntN(4) {
			at := d.rng.IntN(documents - 1)
			ranking[at], ranking[at+1] = ranking[at+1], ranking[at]
		}
		n := roots[topic]
		for _, document := range ranking[:shown] {
			next := n.behind[document]
			if next == nil {
				next = &node{d.extend(n.prompt, sizes[topic][document]), map[int]*node{}}
				n.behind[document] = next
			}
			n = next
		}
		out[i] = d.extend(n.prompt, d.rng.IntN(2))
	}
	return out
}

// longDocuments are 150, of 4,000 to 80,000 tokens. 20 readers at once ask 5 questions in the mean about one of them, each as
// long as a chunk, and then go on with another one. Few documents are popular.
func longDocuments(d *drawer, prompts int) []prompt {
	type reader struct{ document, left int }
	all := make([]prompt, 150)
	for i := range all {
		all[i] = d.extend(nil, int(16*math.Pow(20, d.rng.Float64())))
	}
	popular := policy.NewZipf(d.rng, len(all), 0.8)
	readers := make([]reader, 20)
	out := make([]prompt, prompts)
	for i := range out {
		r := &readers[d.rng.IntN(len(readers))]
		if r.left == 0 {
			*r = reader{popular.Rank(), d.times(5)}
		}
		r.left--
		out[i] = d.extend(all[r.document], 1)
	}
	return out
}

// mixed has the prompts of all the others in one store.
func mixed(d *drawer, prompts int) []prompt {
	kinds := []func(*drawer, int) []prompt{systemPrompts, conversations, rag, longDocuments}
	queues := make([][]prompt, len(kinds))
	for i, draw := range kinds {
		queues[i] = draw(d, prompts/len(kinds)+1)
	}
	out := make([]prompt, prompts)
	for i := range out {
		out[i], queues[i%len(kinds)] = queues[i%len(kinds)][0], queues[i%len(kinds)][1:]
	}
	return out
}
