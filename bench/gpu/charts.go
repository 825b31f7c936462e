package main

import "fmt"

// charts returns a chart for each file, without an ending; none without points.
func (r *report) charts() map[string]chart {
	size := func(x float64) string { return bytesText(int(x)) }
	bandwidth := chart{title: "single copies: bandwidth", x: "size of the copy", y: "GB/s", xText: size}
	submit := chart{title: "single copies: the call that submits", x: "size of the copy", y: "µs, median", xText: size, logY: true}
	register := chart{title: "registering memory", x: "size of the memory", y: "seconds for each GiB", xText: size}
	for _, c := range r.Copies {
		if c.Batch == 1 && c.Offset == 0 {
			bandwidth.add(c.Arm, float64(c.Size), c.Bandwidth)
			submit.add(c.Arm, float64(c.Size), c.Submit.Median/1e3)
		}
	}
	for _, p := range r.Pinning {
		calls := "one call"
		if p.Call < p.Size {
			calls = fmt.Sprintf("calls of %s", bytesText(p.Call))
		}
		register.add(p.State+", "+calls, float64(p.Size), p.PerGiB)
	}
	all := map[string]chart{}
	for name, c := range map[string]chart{"bandwidth": bandwidth, "submit": submit, "register": register} {
		if len(c.lines) == 0 {
			continue
		}
		c.title += "; " + r.Machine.Device
		if r.Machine.Doubt != "" {
			c.title += " (NOT A RESULT)"
		}
		all[name] = c
	}
	return all
}

// add adds a point to the line with a label. Zeros are left out: a logarithm has no place for them.
func (c *chart) add(label string, x, y float64) {
	if y <= 0 {
		return
	}
	for i := range c.lines {
		if c.lines[i].label == label {
			c.lines[i].points = append(c.lines[i].points, spot{x, y})
			return
		}
	}
	c.lines = append(c.lines, line{label, []spot{{x, y}}})
}
