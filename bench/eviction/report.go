package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

func printHead() {
	fmt.Print("Hit rate / saved cost, in %.\n\n| trace | GiB |")
	for _, c := range contenders {
		fmt.Printf(" %s |", c.name)
	}
	fmt.Printf("\n| --- | ---: |%s\n", strings.Repeat(" ---: |", len(contenders)))
}

func printRow(r row) {
	fmt.Printf("| %s | %g |", r.workload, r.gib)
	for _, x := range r.results {
		fmt.Printf(" %.1f / %.1f |", 100*x.hits, 100*x.cost)
	}
	fmt.Println()
}

// printDeployments prints what the traces were drawn for, which is the same for
// all capacities.
func printDeployments(rows []row) {
	fmt.Print("| trace | deployments |\n| --- | --- |\n")
	for i, r := range rows {
		if i == 0 || rows[i-1].workload != r.workload {
			fmt.Printf("| %s | %s |\n", r.workload, strings.Join(r.deployments, "; "))
		}
	}
	fmt.Println()
}

// summary is one policy over all rows.
type summary struct {
	name        string
	mean        result
	beside      float64 // the least saved cost beside LRU's, in any row
	where       string  // that row
	best, worse int     // rows where it saves most, and less than LRU
}

func summarize(rows []row) []summary {
	policies := len(contenders) - 1
	out := make([]summary, len(contenders))
	for i, c := range contenders {
		s := summary{name: c.name}
		for _, r := range rows {
			s.mean = s.mean.add(r.results[i], 1/float64(len(rows)))
			more := r.results[i].cost - r.results[0].cost
			if s.where == "" || more < s.beside {
				s.beside, s.where = more, fmt.Sprintf("%s, %g GiB", r.workload, r.gib)
			}
			top := slices.MaxFunc(r.results[:policies], func(a, b result) int { return cmp.Compare(a.cost, b.cost) })
			// A difference below a tenth of a point is none.
			if i < policies && r.results[i].cost > top.cost-0.0005 {
				s.best++
			}
			if more < -0.0005 {
				s.worse++
			}
		}
		out[i] = s
	}
	return out
}

func printSummary(rows []row) {
	all := summarize(rows)
	fmt.Println("Means over all rows, in %; the last columns are about saved cost, in points and rows.")
	fmt.Println()
	fmt.Println("| policy | hit rate | byte hit rate | saved cost | least beside LRU | best in | below LRU in |")
	fmt.Println("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
	for _, s := range all {
		fmt.Printf("| %s | %.1f | %.1f | %.1f | %+.1f (%s) | %d | %d |\n", s.name,
			100*s.mean.hits, 100*s.mean.bytes, 100*s.mean.cost, 100*s.beside, s.where, s.best, s.worse)
	}
	ranked := slices.Clone(all[:len(all)-1])
	slices.SortStableFunc(ranked, func(a, b summary) int {
		return cmp.Or(cmp.Compare(b.mean.cost, a.mean.cost), cmp.Compare(b.mean.hits, a.mean.hits))
	})
	first, second := ranked[0], ranked[1]
	fmt.Printf("\nThe choice: %s saves %.1f %% of the cost, the next best, %s, %.1f %%, LRU %.1f %%, and the oracle %.1f %%.\n",
		first.name, 100*first.mean.cost, second.name, 100*second.mean.cost, 100*all[0].mean.cost,
		100*all[len(all)-1].mean.cost)
}
