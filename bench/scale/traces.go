package main

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/ringcache/ringcache/bench/internal/policy"
	"github.com/ringcache/ringcache/internal/sizing"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// load is what hosts are asked for, and what they have for it.
type load struct {
	name, title string
	draw        func(rng *rand.Rand, hosts, requests int) *sizing.Trace
	requests    int     // of each host
	rate        float64 // requests a second of each host
	compute     float64 // seconds for an object
	memory      int64   // of each host
	disk        int64   // of each host
	store       int64   // of all hosts
}

var loads = []load{
	{
		"images", "outputs of a vision encoder, 34 MiB each", images,
		4_000, 1, 0.5, 4 * gib, 16 * gib, 128 * gib,
	},
	{
		"conversations", "KV of conversations on any host, blocks of 64 MiB", anywhere,
		200, 0.05, 0.05, 32 * gib, 128 * gib, 4096 * gib,
	},
	{
		"kept", "KV of conversations that stay on their host, blocks of 64 MiB", kept,
		200, 0.05, 0.05, 32 * gib, 128 * gib, 4096 * gib,
	},
}

// trace is the same for the same seed, whatever the machine.
func (l load) trace(seed uint64, hosts, requests int) *sizing.Trace {
	h := fnv.New64a()
	_, _ = h.Write([]byte(l.name))
	rng := rand.New(rand.NewPCG(seed, h.Sum64()))
	t := l.draw(rng, hosts, requests*hosts)
	if t.Hosts == nil {
		t.Spread(hosts, rng)
	}
	return t
}

// What images are.
const (
	imageBytes   = 3315 * 5376 * 2 // Gemma 3 27B, bfloat16
	imageObjects = 20_000
	imageZipf    = 0.8
	imageOnce    = 0.2
)

// images are look-ups by Zipf's law, with the exponent that caches of the web see (Breslau, Cao, Fan, Phillips and
// Shenker, "Web Caching and Zipf-like Distributions", 1999). One in five is of an image that does not come again.
func images(rng *rand.Rand, _, requests int) *sizing.Trace {
	return zipf(rng, requests, sizing.Shape{Objects: imageObjects, Zipf: imageZipf, Once: imageOnce, Bytes: imageBytes})
}

// zipf draws the look-ups of a shape.
func zipf(rng *rand.Rand, requests int, s sizing.Shape) *sizing.Trace {
	popular := policy.NewZipf(rng, s.Objects, s.Zipf)
	next := int32(s.Objects)
	t := &sizing.Trace{Keys: make([]int32, requests), Bytes: []int64{s.Bytes}}
	for i := range t.Keys {
		if rng.Float64() < s.Once {
			t.Keys[i] = next
			next++
			continue
		}
		t.Keys[i] = int32(popular.Rank())
	}
	return t
}

// anywhere are conversations whose requests go to any host.
func anywhere(rng *rand.Rand, hosts, requests int) *sizing.Trace {
	t := kept(rng, hosts, requests)
	t.Hosts = nil
	return t
}

// kept are conversations that stay on the host on which they begin. They are like the public conversation trace of Mooncake, in
// blocks of 512 tokens: all prompts begin with one block, some half of them are the first of a conversation, and the
// others come back to one after seconds or up to an hour. Lengths differ by two orders of magnitude.
func kept(rng *rand.Rand, hosts, requests int) *sizing.Trace {
	const system = 0
	t := &sizing.Trace{Bytes: []int64{64 * mib}, Parents: []int32{-1}}
	extend := func(prompt []int32, median, spread float64) []int32 {
		prompt = slices.Clip(prompt) // others may go on with it, too
		n := 1 + min(int(median*math.Exp(spread*rng.NormFloat64())), 250)
		for range n {
			t.Parents = append(t.Parents, prompt[len(prompt)-1])
			prompt = append(prompt, int32(len(t.Parents)-1))
		}
		return prompt
	}
	// A conversation goes on with a request among as many of the latest ones as come within an hour, but
	// those of the last seconds.
	soonest, latest := hosts, 180*hosts
	var past [][]int32
	for i := range requests {
		var prompt []int32
		var host uint16
		// As likely within twice any time as within half of it.
		back := int(float64(soonest) * math.Pow(float64(latest)/float64(soonest), rng.Float64()))
		if rng.Float64() < 0.45 && back <= len(past) {
			prompt, host = extend(past[i-back], 2, 1.2), t.Hosts[i-back]
		} else {
			prompt, host = extend([]int32{system}, 11, 1.2), uint16(rng.IntN(hosts))
		}
		past = append(past, prompt)
		t.Hosts = append(t.Hosts, host)
		t.Keys = append(t.Keys, prompt...)
		t.Ends = append(t.Ends, int32(len(t.Keys)))
	}
	return t
}
