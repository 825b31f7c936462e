package main

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// placement is a column of the tables with leases.
type placement struct {
	name string
	make func(t trace, capacity int64, inFlight int) placed
}

// abortEvery is a request of so many that upstream never sees to end.
const abortEvery = 1000

var placements = []placement{
	{"ring", func(t trace, c int64, n int) placed { return newRingCache(c, 0, t.largest(), newLeases(n, 0)) }},
	{"ring, aborts", func(t trace, c int64, n int) placed {
		return newRingCache(c, 0, t.largest(), newLeases(n, abortEvery))
	}},
	{"pool", func(_ trace, c int64, n int) placed { return newPoolCache(c, 0, newLeases(n, 0)) }},
	{"learned, leases", func(_ trace, c int64, n int) placed { return newLeasedCache(c, newLeases(n, 0)) }},
}

func (t trace) largest() (n int64) {
	for _, it := range t.uses {
		n = max(n, it.Size)
	}
	return n
}

// fared is what a placement did with a trace, or the mean of some.
type fared struct {
	result
	refused, blocked float64 // shares of the puts
}

func (f fared) add(o fared, weight float64) fared {
	return fared{f.result.add(o.result, weight), f.refused + weight*o.refused, f.blocked + weight*o.blocked}
}

func fare(t trace, c placed) fared {
	defer c.close()
	r := replay(t.uses, c)
	b := c.account()
	puts := float64(max(b.puts, 1))
	return fared{r, float64(b.refused) / puts, float64(b.blocked) / puts}
}

// beside are the contenders without placement and leases that are shown again.
var beside = []string{"learned", "LRU"}

func placementNames() (names []string) {
	for _, p := range placements {
		names = append(names, p.name)
	}
	return append(names, beside...)
}

// all are the row's columns of the tables with placement.
func (r row) all() []fared {
	out := slices.Clone(r.placed)
	for _, name := range beside {
		i := slices.IndexFunc(contenders, func(c contender) bool { return c.name == name })
		out = append(out, fared{result: r.results[i]})
	}
	return out
}

func printPlacements(o options, rows []row) {
	names := placementNames()
	fmt.Printf("Hit rate / saved cost, in %%, with leases of the last %d requests; the last two columns have none.\n\n", o.Leases)
	fmt.Printf("| trace | GiB | %s |\n| --- | ---: |%s\n", strings.Join(names, " | "),
		strings.Repeat(" ---: |", len(names)))
	means := make([]fared, len(names))
	for _, r := range rows {
		fmt.Printf("| %s | %g |", r.workload, r.gib)
		for i, f := range r.all() {
			fmt.Printf(" %.1f / %.1f |", 100*f.hits, 100*f.cost)
			means[i] = means[i].add(f, 1/float64(len(rows)))
		}
		fmt.Println()
	}
	fmt.Print("\nMeans over all rows, in %. Refused puts are shares of all puts; of those that are blocked, enough bytes were free\nor not leased, but not where they were needed.\n\n" +
		"| cache | hit rate | byte hit rate | saved cost | puts refused | blocked |\n| --- | ---: | ---: | ---: | ---: | ---: |\n")
	for i, m := range means {
		fmt.Printf("| %s | %.1f | %.1f | %.1f | %.2f | %.2f |\n", names[i], 100*m.hits, 100*m.bytes, 100*m.cost,
			100*m.refused, 100*m.blocked)
	}
	fmt.Println()
}

// each runs f for 0 to n-1, on all cores.
func each(n int, f func(i int)) {
	var wg sync.WaitGroup
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range n {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			f(i)
		})
	}
	wg.Wait()
}
