package main

import (
	"math"
	"math/rand/v2"

	"github.com/ringcache/ringcache/internal/sizing"
)

// steady is a load that the calculator of ringcache serve plan is compared with the simulation in: long enough for
// levels to come to rest in the first half.
type steady struct {
	shape    sizing.Shape
	sizes    sizing.Sizes
	requests int // of each host
}

var steadyLoads = []steady{
	{sizing.Shape{Objects: 4000, Zipf: 0.8, Bytes: mib}, sizing.Sizes{Hosts: 1, Memory: 200 * mib, Store: 1000 * mib}, 100_000},
	{sizing.Shape{Objects: 4000, Zipf: 0.8, Once: 0.2, Bytes: mib}, sizing.Sizes{Hosts: 1, Memory: 200 * mib, Disk: 800 * mib, Store: 2000 * mib}, 150_000},
	{sizing.Shape{Objects: 4000, Zipf: 0.8, Once: 0.2, Bytes: mib}, sizing.Sizes{Hosts: 4, Memory: 200 * mib, Store: 1000 * mib}, 40_000},
	{sizing.Shape{Objects: 4000, Zipf: 0.8, Once: 0.2, Bytes: mib}, sizing.Sizes{Hosts: 10, Memory: 200 * mib, Disk: 800 * mib, Store: 2000 * mib}, 40_000},
	{sizing.Shape{Objects: 4000, Zipf: 0.6, Bytes: mib}, sizing.Sizes{Hosts: 2, Memory: 500 * mib, Store: sizing.Unbounded}, 60_000},
	{sizing.Shape{Objects: 4000, Zipf: 1.1, Once: 0.3, Bytes: mib}, sizing.Sizes{Hosts: 30, Memory: 100 * mib, Store: 500 * mib}, 12_000},
	{sizing.Shape{Objects: 1000, Zipf: 0.9, Once: 0.1, Bytes: mib}, sizing.Sizes{Hosts: 100, Memory: 50 * mib, Disk: 150 * mib, Store: 400 * mib}, 12_000},
}

// compared is a load with what both say of it.
type compared struct {
	steady
	calculated, simulated sizing.Plan
}

func (s steady) compare(seed uint64, n network) compared {
	rng := rand.New(rand.NewPCG(seed, 7))
	t := zipf(rng, s.requests*s.sizes.Hosts, s.shape)
	t.Spread(s.sizes.Hosts, rng)
	found := t.Replay(s.sizes.Hosts, s.sizes.Memory, s.sizes.Disk)
	r := simulate(t, found, load{rate: 10, compute: 0.05}, s.sizes.Hosts, s.sizes.Store, n, seed)
	return compared{s, sizing.PlanShape(s.shape, s.sizes), r.plan}
}

// apart is how much the calculated share is above or below the simulated one, as a part of the latter. What is less
// than one look-up in a hundred counts as that.
func (c compared) apart(at sizing.Found) float64 {
	simulated := c.simulated.Found[at].Share
	return math.Abs(c.calculated.Found[at].Share-simulated) / max(simulated, 0.01)
}
