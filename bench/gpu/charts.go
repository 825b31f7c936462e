package main

import (
	"fmt"

	"github.com/ringcache/ringcache/bench/internal/chart"
)

// charts returns a chart for each file, without an ending; none without points.
func (r *report) charts() map[string]chart.Chart {
	size := func(x float64) string { return bytesText(int(x)) }
	bandwidth := chart.Chart{Title: "single copies: bandwidth", X: "size of the copy", Y: "GB/s", XText: size}
	submit := chart.Chart{Title: "single copies: the call that submits", X: "size of the copy", Y: "µs, median",
		XText: size, LogY: true}
	register := chart.Chart{Title: "registering memory", X: "size of the memory", Y: "seconds for each GiB",
		XText: size}
	for _, c := range r.Copies {
		if c.Batch == 1 && c.Offset == 0 {
			bandwidth.Add(c.Arm, float64(c.Size), c.Bandwidth)
			submit.Add(c.Arm, float64(c.Size), c.Submit.Median/1e3)
		}
	}
	for _, p := range r.Pinning {
		calls := "one call"
		if p.Call < p.Size {
			calls = fmt.Sprintf("calls of %s", bytesText(p.Call))
		}
		register.Add(p.State+", "+calls, float64(p.Size), p.PerGiB)
	}
	all := map[string]chart.Chart{}
	for name, c := range map[string]chart.Chart{"bandwidth": bandwidth, "submit": submit, "register": register} {
		if len(c.Lines) == 0 {
			continue
		}
		c.Title += "; " + r.Machine.Device
		if r.Machine.Doubt != "" {
			c.Title += " (NOT A RESULT)"
		}
		all[name] = c
	}
	return all
}
