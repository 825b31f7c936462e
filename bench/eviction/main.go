// Command eviction compares eviction policies on synthetic traces, in Markdown.
//
// Every missed item is admitted, whole and at once. In the first table any free
// bytes hold it (there is no placement), and nothing is leased. What counts is
// the saved cost: the share of the time to make items that hits save. Then the
// same traces are replayed with the real allocators of shmring and with leases,
// and tables say how much room those waste and how long they look for it.
package main

import (
	"fmt"
	"slices"

	"github.com/alecthomas/kong"

	"github.com/ringcache/ringcache/bench/internal/policy"
)

type options struct {
	Seed     uint64    `help:"Seed of the first set of traces; a seed also draws the deployments." default:"1"`
	Seeds    int       `help:"Sets of traces; the table has their means." default:"2"`
	Requests int       `help:"Uses of items per trace." default:"150000"`
	GiB      []float64 `name:"gib" help:"Capacities in GiB." default:"1,4,16"`
	Leases   int       `help:"Requests in flight of the replays with placement." default:"16"`
	Tables   []string  `help:"What to print." enum:"traces,fragmentation,holes,cost" default:"traces,fragmentation,holes,cost"`
	Plots    string    `help:"Folder for charts (SVG) of the traces' hit rates."`
}

// contender is one column of the table.
type contender struct {
	name string
	make func(t trace, capacity int64) policy.Cache
}

// The first is what all are compared with, the last is not a policy.
var contenders = []contender{
	{"LRU", func(_ trace, c int64) policy.Cache { return newLRU(c, false) }},
	{"FIFO", func(_ trace, c int64) policy.Cache { return newLRU(c, true) }},
	{"S3-FIFO", func(_ trace, c int64) policy.Cache { return newS3FIFO(c) }},
	{"W-TinyLFU", func(_ trace, c int64) policy.Cache { return newTinyLFU(c, 0.1) }},
	{"GDSF", func(_ trace, c int64) policy.Cache { return policy.NewScored(policy.NewGDSF(), c) }},
	{"LFU-DA", func(_ trace, c int64) policy.Cache { return policy.NewScored(policy.NewLFUDA(), c) }},
	{"LRFU 1k", func(_ trace, c int64) policy.Cache { return policy.NewScored(policy.NewLRFU(1000), c) }},
	{"LRFU 10k", func(_ trace, c int64) policy.Cache { return policy.NewScored(policy.NewLRFU(10000), c) }},
	{"hyperbolic", func(_ trace, c int64) policy.Cache { return policy.NewScored(policy.NewHyperbolic(), c) }},
	{"learned", func(_ trace, c int64) policy.Cache { return policy.NewScored(policy.NewLearned(c), c) }},
	{"oracle", func(t trace, c int64) policy.Cache { return policy.NewScored(policy.NewOracle(t.uses), c) }},
}

// result is shares of a trace that were found: of its uses, bytes and cost.
type result struct{ hits, bytes, cost float64 }

func (r result) add(o result, weight float64) result {
	return result{r.hits + weight*o.hits, r.bytes + weight*o.bytes, r.cost + weight*o.cost}
}

func replay(uses []*policy.Item, c policy.Cache) result {
	var found, all result
	for _, it := range uses {
		one := result{1, float64(it.Size), it.Cost}
		all = all.add(one, 1)
		if c.Get(it) {
			found = found.add(one, 1)
		} else {
			c.Put(it)
		}
	}
	return result{found.hits / all.hits, found.bytes / all.bytes, found.cost / all.cost}
}

// row is a workload with a capacity, over all seeds.
type row struct {
	workload    string
	gib         float64
	deployments []string
	results     []result // by contender
	placed      []fared  // by placement
}

func (o options) run(w workload, gibs float64) row {
	r := row{workload: w.name, gib: gibs, results: make([]result, len(contenders)),
		placed: make([]fared, len(placements))}
	capacity := int64(gibs * gib)
	for s := range o.Seeds {
		t := w.trace(o.Seed+uint64(s), o.Requests, capacity)
		r.deployments = append(r.deployments, t.deployment)
		share := 1 / float64(o.Seeds)
		each(len(contenders)+len(placements), func(i int) {
			if i < len(contenders) {
				r.results[i] = r.results[i].add(replay(t.uses, contenders[i].make(t, capacity)), share)
				return
			}
			i -= len(contenders)
			r.placed[i] = r.placed[i].add(fare(t, placements[i].make(t, capacity, o.Leases)), share)
		})
	}
	return r
}

func main() {
	var o options
	k := kong.Parse(&o, kong.Description("Compares eviction policies on synthetic traces."))
	if o.Seeds < 1 || o.Requests < 1 || len(o.GiB) == 0 || slices.Min(o.GiB) < 0.5 {
		k.Fatalf("there must be seeds, requests and capacities, and the largest items need half a GiB")
	}
	if o.prints("traces") {
		k.FatalIfErrorf(o.traces())
	}
	if o.prints("fragmentation") {
		printFragmentation()
	}
	if o.prints("holes") {
		printHoles()
	}
	if o.prints("cost") {
		printCosts()
	}
}

func (o options) prints(table string) bool { return slices.Contains(o.Tables, table) }

func (o options) traces() error {
	var rows []row
	printHead()
	for _, w := range workloads {
		for _, g := range o.GiB {
			r := o.run(w, g)
			printRow(r)
			rows = append(rows, r)
		}
	}
	fmt.Println()
	printDeployments(rows)
	printSummary(rows)
	fmt.Println()
	printPlacements(o, rows)
	if o.Plots == "" {
		return nil
	}
	return writeCharts(o.Plots, rows)
}
