// Package chart draws line charts as SVG.
package chart

import (
	"encoding/xml"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Chart is a line chart. The x axis is logarithmic; y is linear from 0, or logarithmic.
type Chart struct {
	Title, X, Y string
	LogY        bool
	XText       func(float64) string // the label of an x value
	Lines       []Line
}

// Line is one line of a chart, through its points in their order.
type Line struct {
	Label  string
	Points []Spot
}

// Spot is a point in the units of the axes.
type Spot struct{ X, Y float64 }

// Add adds a point to the line with a label. Zeros are left out: a logarithm has no place for them.
func (c *Chart) Add(label string, x, y float64) {
	if x <= 0 || y <= 0 {
		return
	}
	for i := range c.Lines {
		if c.Lines[i].Label == label {
			c.Lines[i].Points = append(c.Lines[i].Points, Spot{x, y})
			return
		}
	}
	c.Lines = append(c.Lines, Line{label, []Spot{{x, y}}})
}

const (
	chartWidth, chartHeight  = 960, 520
	plotLeft, plotTop        = 80, 50
	plotRight, plotBottom    = 620, 450
	legendLeft, legendHeight = 640, 20
	labelWidth               = 48
)

// colours can be told apart by people who see fewer (Okabe and Ito).
var colours = []string{"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999"}

// SVG draws the chart, which has at least one point.
func (c Chart) SVG() []byte {
	var s strings.Builder
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", chartWidth, chartHeight)
	fmt.Fprintf(&s, `<rect width="%d" height="%d" fill="white"/>`+"\n", chartWidth, chartHeight)
	text(&s, plotLeft, 24, "start", c.Title)
	text(&s, (plotLeft+plotRight)/2, chartHeight-20, "middle", c.X)
	text(&s, plotLeft, 42, "start", c.Y)
	fmt.Fprintf(&s, `<path d="M%d %dV%dH%d" stroke="black" fill="none"/>`+"\n", plotLeft, plotTop, plotBottom,
		plotRight)
	toX, toY := c.scales()
	free := 0.0 // where the last label leaves room
	for _, x := range c.places() {
		if at := toX(x); at >= free {
			text(&s, at, plotBottom+18, "middle", c.XText(x))
			free = at + labelWidth
		}
	}
	for _, y := range c.ticks() {
		fmt.Fprintf(&s, `<path d="M%d %.1fH%d" stroke="#ddd" fill="none"/>`+"\n", plotLeft, toY(y), plotRight)
		text(&s, plotLeft-6, toY(y)+4, "end", fmt.Sprintf("%.4g", y))
	}
	for i, l := range c.Lines {
		colour := colours[i%len(colours)]
		var path strings.Builder
		for j, p := range l.Points {
			command := "L"
			if j == 0 {
				command = "M"
			}
			fmt.Fprintf(&path, "%s%.1f %.1f", command, toX(p.X), toY(p.Y))
			fmt.Fprintf(&s, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", toX(p.X), toY(p.Y), colour)
		}
		fmt.Fprintf(&s, `<path d="%s" stroke="%s" stroke-width="1.5" fill="none"/>`+"\n", path.String(), colour)
		y := plotTop + i*legendHeight
		fmt.Fprintf(&s, `<rect x="%d" y="%d" width="12" height="12" fill="%s"/>`+"\n", legendLeft, y, colour)
		text(&s, legendLeft+18, float64(y+11), "start", l.Label)
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
func (c Chart) bounds() (low, high Spot) {
	low, high = Spot{math.Inf(1), math.Inf(1)}, Spot{math.Inf(-1), math.Inf(-1)}
	for _, l := range c.Lines {
		for _, p := range l.Points {
			low = Spot{min(low.X, p.X), min(low.Y, p.Y)}
			high = Spot{max(high.X, p.X), max(high.Y, p.Y)}
		}
	}
	return low, high
}

func (c Chart) scales() (toX, toY func(float64) float64) {
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
		return along(math.Log2(x), math.Log2(low.X), math.Log2(high.X), plotLeft+20, plotRight-20)
	}
	toY = func(y float64) float64 {
		if c.LogY {
			y, first, last := math.Log10(max(y, first)), math.Log10(first), math.Log10(last)
			return along(y, first, last, plotBottom, plotTop)
		}
		return along(y, first, last, plotBottom, plotTop)
	}
	return toX, toY
}

// places are the x values of all points, once each.
func (c Chart) places() []float64 {
	seen := map[float64]bool{}
	for _, l := range c.Lines {
		for _, p := range l.Points {
			seen[p.X] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// ticks are round values from below the least y to above the most.
func (c Chart) ticks() (all []float64) {
	low, high := c.bounds()
	if c.LogY {
		for e := math.Floor(math.Log10(low.Y)); ; e++ {
			all = append(all, math.Pow(10, e))
			if all[len(all)-1] >= high.Y && len(all) > 1 {
				return all
			}
		}
	}
	step := math.Pow(10, math.Floor(math.Log10(high.Y)))
	if high.Y/step < 4 {
		step /= 4
	}
	for y := 0.0; ; y += step {
		all = append(all, y)
		if y >= high.Y {
			return all
		}
	}
}
