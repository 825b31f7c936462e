package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/ringcache/ringcache/bench/internal/chart"
)

const boundName = "bound"

func writeTable(w io.Writer, o options, rows []row) {
	fmt.Fprintf(w, "# Hit rates of prompts of chunks\n\nWritten by `make bench`; [its README](../tiers/README.md) describes traces and rules. "+
		"Seeds %d to %d, %d prompts each.\n\nShare of the tokens that were found / of the time to compute all that this saves, in %%, means over the seeds. "+
		"No rule can exceed the bound, which may be out of reach.\n\n| trace | GiB |", o.Seed,
		o.Seed+uint64(o.Seeds)-1, o.Prompts)
	for _, c := range contenders {
		fmt.Fprintf(w, " %s |", c.name)
	}
	fmt.Fprintf(w, " %s | learned beside LRU, time: mean (least) |\n| --- | ---: |%s\n", boundName,
		strings.Repeat(" ---: |", len(contenders)+2))
	for _, r := range rows {
		fmt.Fprintf(w, "| %s | %g |", r.workload.name, r.gib)
		for _, x := range r.results {
			fmt.Fprintf(w, " %.1f / %.1f |", 100*x.tokens, 100*x.time)
		}
		fmt.Fprintf(w, " %+.1f (%+.1f) |\n", 100*(r.results[learned].time-r.results[lru].time), 100*r.more)
	}
}

// charts returns the share of the tokens over the capacity, a chart for each workload, by the names of their
// files.
func charts(rows []row) map[string]chart.Chart {
	all := map[string]chart.Chart{}
	for _, r := range rows {
		name := "tiers-hit-rate-" + r.workload.name
		c, ok := all[name]
		if !ok {
			c = chart.Chart{Title: "tokens found: " + r.workload.title, X: "size of the cache", Y: "% of the tokens",
				XText: func(gib float64) string {
					return fmt.Sprintf("%g GiB", gib)
				}}
		}
		for i, x := range r.results {
			label := boundName
			if i < len(contenders) {
				label = contenders[i].name
			}
			c.Add(label, r.gib, 100*x.tokens)
		}
		all[name] = c
	}
	return all
}
