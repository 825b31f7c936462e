package main

import (
	"encoding/xml"
	"fmt"
	"math"
	"strings"
)

// chart is a line chart. The x axis is logarithmic; y is linear from 0, or logarithmic.
type chart struct {
	title, x, y string
	logY        bool
	xText       func(float64) string
	lines       []line
}

type line struct {
	label  string
	points []spot
}

type spot struct{ x, y float64 }

const (
	chartWidth, chartHeight  = 960, 520
	plotLeft, plotTop        = 80, 50
	plotRight, plotBottom    = 620, 450
	legendLeft, legendHeight = 640, 20
	labelWidth               = 48
)

// colours can be told apart by people who see fewer (Okabe and Ito).
var colours = []string{"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999"}

// svg draws the chart.
func (c chart) svg() []byte {
	var s strings.Builder
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", chartWidth, chartHeight)
	fmt.Fprintf(&s, `<rect width="%d" height="%d" fill="white"/>`+"\n", chartWidth, chartHeight)
	text(&s, plotLeft, 24, "start", c.title)
	text(&s, (plotLeft+plotRight)/2, chartHeight-20, "middle", c.x)
	text(&s, plotLeft, 42, "start", c.y)
	fmt.Fprintf(&s, `<path d="M%d %dV%dH%d" stroke="black" fill="none"/>`+"\n", plotLeft, plotTop, plotBottom, plotRight)
	toX, toY := c.scales()
	free := 0.0 // where the last label leaves room
	for _, x := range c.places() {
		if at := toX(x); at >= free {
			text(&s, at, plotBottom+18, "middle", c.xText(x))
			free = at + labelWidth
		}
	}
	for _, y := range c.ticks() {
		fmt.Fprintf(&s, `<path d="M%d %.1fH%d" stroke="#ddd" fill="none"/>`+"\n", plotLeft, toY(y), plotRight)
		text(&s, plotLeft-6, toY(y)+4, "end", fmt.Sprintf("%.4g", y))
	}
	for i, l := range c.lines {
		colour := colours[i%len(colours)]
		var path strings.Builder
		for j, p := range l.points {
			command := "L"
			if j == 0 {
				command = "M"
			}
			fmt.Fprintf(&path, "%s%.1f %.1f", command, toX(p.x), toY(p.y))
			fmt.Fprintf(&s, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", toX(p.x), toY(p.y), colour)
		}
		fmt.Fprintf(&s, `<path d="%s" stroke="%s" stroke-width="1.5" fill="none"/>`+"\n", path.String(), colour)
		y := plotTop + i*legendHeight
		fmt.Fprintf(&s, `<rect x="%d" y="%d" width="12" height="12" fill="%s"/>`+"\n", legendLeft, y, colour)
		text(&s, legendLeft+18, float64(y+11), "start", l.label)
	}
	s.WriteString("</svg>\n")
	return []byte(s.String())
}

func text(s *strings.Builder, x, y float64, anchor, t string) {
	fmt.Fprintf(s, `<text x="%.1f" y="%.1f" text-anchor="%s">`, x, y, anchor)
	_ = xml.EscapeText(s, []byte(t)) // into memory
	s.WriteString("</text>\n")
}

// bounds returns the extremes of all points.
func (c chart) bounds() (low, high spot) {
	low, high = spot{math.Inf(1), math.Inf(1)}, spot{math.Inf(-1), math.Inf(-1)}
	for _, l := range c.lines {
		for _, p := range l.points {
			low = spot{min(low.x, p.x), min(low.y, p.y)}
			high = spot{max(high.x, p.x), max(high.y, p.y)}
		}
	}
	return low, high
}

func (c chart) scales() (toX, toY func(float64) float64) {
	low, high := c.bounds()
	ticks := c.ticks()
	first, last := ticks[0], ticks[len(ticks)-1]
	along := func(v, low, high float64, from, to int) float64 {
		if high <= low {
			return float64(from+to) / 2
		}
		return float64(from) + (v-low)/(high-low)*float64(to-from)
	}
	toX = func(x float64) float64 {
		return along(math.Log2(x), math.Log2(low.x), math.Log2(high.x), plotLeft+20, plotRight-20)
	}
	toY = func(y float64) float64 {
		if c.logY {
			y, first, last := math.Log10(max(y, first)), math.Log10(first), math.Log10(last)
			return along(y, first, last, plotBottom, plotTop)
		}
		return along(y, first, last, plotBottom, plotTop)
	}
	return toX, toY
}

// places are the x values of all points, once each.
func (c chart) places() []float64 {
	seen := map[float64]bool{}
	for _, l := range c.lines {
		for _, p := range l.points {
			seen[p.x] = true
		}
	}
	return sortedKeys(seen)
}

// ticks are round values from below the least y to above the most.
func (c chart) ticks() (all []float64) {
	low, high := c.bounds()
	if c.logY {
		for e := math.Floor(math.Log10(low.y)); ; e++ {
			all = append(all, math.Pow(10, e))
			if all[len(all)-1] >= high.y && len(all) > 1 {
				return all
			}
		}
	}
	step := math.Pow(10, math.Floor(math.Log10(high.y)))
	if high.y/step < 4 {
		step /= 4
	}
	for y := 0.0; ; y += step {
		all = append(all, y)
		if y >= high.y {
			return all
		}
	}
}
