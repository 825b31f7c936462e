package main

import (
	"fmt"

	"github.com/ringcache/ringcache/bench/internal/chart"
)

// charts returns the plots by the names of their files.
func charts(r *Record) map[string]chart.Chart {
	all := map[string]chart.Chart{}
	for _, e := range experiments {
		for _, x := range r.Results {
			if x.Job != e.name {
				continue
			}
			name, title, at := place(e.axis, x.Case)
			c, ok := all[name]
			if !ok {
				c = chart.Chart{Title: title, X: axes[e.axis].title, Y: "µs, median", LogY: true,
					XText: axes[e.axis].text}
			}
			c.Add(x.Peer, at, x.quantile(0.5)/1e3)
			all[name] = c
			if e.each {
				addLatencies(all, x)
			}
		}
	}
	for name, c := range all {
		if len(c.Lines) == 0 {
			delete(all, name)
		}
	}
	return all
}

// axes are what a plot can go over.
var axes = map[string]struct {
	title string
	text  func(float64) string
}{
	"size":       {"size of the object", sizeText},
	"live":       {"live objects", func(x float64) string { return fmt.Sprintf("%.0f", x) }},
	"goroutines": {"goroutines", func(x float64) string { return fmt.Sprintf("%.0f", x) }},
}

// place returns the plot that a case belongs to, and its x there.
func place(axis string, c Case) (name, title string, x float64) {
	name, title = c.Job, c.Job
	if c.Ring != "" {
		name, title = name+"-"+c.Ring, title+", "+c.Ring+" ring"
	}
	switch axis {
	case "live":
		return name, title, float64(c.Live)
	case "goroutines":
		return fmt.Sprintf("%s-%d", name, c.Size/kib), title + ", " + sizeText(float64(c.Size)), float64(c.Goroutines)
	}
	return name, title, float64(c.Size)
}

// addLatencies adds the distribution of a result to the plot of its size: the quantile q is at 1 / (1 - q),
// so that the logarithmic axis has as much room for the slowest hundredth as for the slowest half.
func addLatencies(all map[string]chart.Chart, x Result) {
	job, _, _ := place("", x.Case)
	name := fmt.Sprintf("latency-%s-%d", job, x.Size/kib)
	c, ok := all[name]
	if !ok {
		c = chart.Chart{Title: "latencies: " + x.Job + ", " + caseText(x.Case), X: "quantile", Y: "µs", LogY: true,
			XText: func(x float64) string {
				return fmt.Sprintf("p%.4g", 100*(1-1/x))
			}}
	}
	for _, beyond := range []float64{1.0 / 0.9, 2, 4, 10, 100, 1000} {
		if float64(len(x.Samples)) >= beyond { // a quantile of fewer is that of one sample
			c.Add(x.Peer, beyond, x.quantile(1-1/beyond)/1e3)
		}
	}
	all[name] = c
}
