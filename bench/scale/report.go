package main

import (
	"fmt"
	"io"

	"github.com/ringcache/ringcache/bench/internal/chart"
	"github.com/ringcache/ringcache/internal/sizing"
)

func writeTable(w io.Writer, o options, rows []row) {
	fmt.Fprintf(w, "# Hosts that share a store\n\nWritten by `go run ./scale` in `bench`; [its README](../scale/README.md) describes loads, levels and network, "+
		"and what the simulation leaves out. Seed %d. Links: %g Gbit/s of each host, %g Gbit/s of the store; %s one way; the store begins a request every %s.\n\n"+
		"Shares are of look-ups, of the second half of each run: memory, disk and store are hits there, and the rest is computed. "+
		"Twice is the share of what is computed that another host was computing, or sending to the store. "+
		"GB/s and load are of the store's link: what hosts ask for and send, and what that is of the rate of the link. Above 100 %% it is more than the link can carry, "+
		"and the times of fetches grow as long as the run goes. Fetch is the time until a request has all that it gets from the store. "+
		"Computing is seconds of computing for each second, of all hosts.\n\n", o.Seed, o.HostLink, o.Link, o.Delay, o.Service)
	fmt.Fprintln(w, "| load | hosts | levels | memory, % | disk, % | store, % | computed, % | twice, % | out, GB/s | load, % | in, GB/s | load, % | fetch p50, ms | p99, ms | computing |")
	fmt.Fprintln(w, "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	for _, r := range rows {
		fmt.Fprintf(w, "| %s | %d | %s |", r.load.name, r.hosts, r.levels.name)
		for _, p := range r.plan.Found {
			fmt.Fprintf(w, " %.1f |", 100*p.Share)
		}
		fmt.Fprintf(w, " %.1f | %.3g | %.1f | %.3g | %.1f |", 100*r.twice, r.sent/1e9, 100*r.out, r.stored/1e9, 100*r.in)
		if r.p99 > 0 && !r.full() {
			fmt.Fprintf(w, " %.1f | %.1f |", 1e3*r.p50, 1e3*r.p99)
		} else {
			fmt.Fprint(w, " - | - |")
		}
		fmt.Fprintf(w, " %.3g |\n", r.computing)
	}
}

// writeComparison shows what the calculator and the simulation say of the same loads.
func writeComparison(w io.Writer, all []compared) {
	fmt.Fprint(w, "\n## The calculator\n\nWhat `ringcache serve plan` calculates, and what a simulation has seen, in % of look-ups. Objects have 1 MiB.\n\n"+
		"| hosts | objects | Zipf | once | memory, MiB | disk, MiB | store, MiB | in memory | on disk | in the store | computed | most apart |\n"+
		"| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, c := range all {
		store := fmt.Sprint(c.sizes.Store / mib)
		if c.sizes.Store == sizing.Unbounded {
			store = "all"
		}
		fmt.Fprintf(w, "| %d | %d | %g | %g | %d | %d | %s |", c.sizes.Hosts, c.shape.Objects, c.shape.Zipf, c.shape.Once,
			c.sizes.Memory/mib, c.sizes.Disk/mib, store)
		most := 0.0
		for at := range c.calculated.Found {
			fmt.Fprintf(w, " %.1f / %.1f |", 100*c.calculated.Found[at].Share, 100*c.simulated.Found[at].Share)
			most = max(most, c.apart(sizing.Found(at)))
		}
		fmt.Fprintf(w, " %.1f |\n", 100*most)
	}
}

// full reports whether there is more to do than can be done, so that times of fetches have no meaning.
func (r result) full() bool { return max(r.out, r.in, r.begins, r.host) >= 1 }

// charts returns them by the names of their files.
func charts(rows []row) map[string]chart.Chart {
	all := map[string]chart.Chart{}
	add := func(name, title, y string, log bool, r row, label string, value float64) {
		name += "-" + r.load.name
		c, ok := all[name]
		if !ok {
			c = chart.Chart{
				Title: title + ": " + r.load.title, X: "hosts", Y: y, LogY: log,
				XText: func(n float64) string { return fmt.Sprintf("%g", n) },
			}
		}
		c.Add(label, float64(r.hosts), value)
		all[name] = c
	}
	for _, r := range rows {
		add("scale-computed", "what no level has", "% of look-ups", false, r, r.levels.name, 100*r.plan.Found[sizing.Nowhere].Share)
		add("scale-link", "what hosts ask the store for", "GB/s", true, r, r.levels.name, r.sent/1e9)
		if !r.full() {
			add("scale-fetch", "time of a request's fetches, where no link is full", "99th percentile, ms", true, r, r.levels.name, 1e3*r.p99)
		}
	}
	for name, c := range all {
		if len(c.Lines) == 0 {
			delete(all, name)
		}
	}
	return all
}
