package page

import (
	"fmt"
	"strings"
	"time"
)

// The size of a curve in its own units, and how many points it has.
const (
	chartWidth, chartHeight = 300, 60
	chartPoints             = 150
)

// windows are how long curves go back: as long as there is something, and no longer than an hour. The points of the
// shortest one are further apart than looks.
var windows = []time.Duration{10 * time.Minute, 30 * time.Minute, span}

// windowOf returns the shortest window that has all samples, oldest first.
func windowOf(samples []sample, now time.Time) time.Duration {
	for _, w := range windows {
		if len(samples) == 0 || samples[0].at >= now.Add(-w).UnixMilli() {
			return w
		}
	}
	return span
}

// chart is a curve over a window.
type chart struct {
	Title string
	From  string   // how long ago its begin is
	Top   string   // the value of its upper edge
	Last  string   // the newest value
	Text  string   // what it shows, for those who don't see it
	Lines []string // points of polylines, one for each time without gaps
	Away  []bar    // while the level was away
}

type bar struct{ X, Width int }

// plot describes how a chart is made of samples.
type plot struct {
	title  string
	top    float64 // of the scale; 0 is the greatest value
	value  func(samples []sample) (float64, bool)
	away   func(sample) bool // nil is never
	format func(float64) string
}

// draw draws a chart. Samples are those of the hour before now, oldest first.
func (p plot) draw(samples []sample, now time.Time) chart {
	window := windowOf(samples, now)
	begin := now.Add(-window).UnixMilli()
	width := window.Milliseconds() / chartPoints
	type point struct {
		at int
		v  float64
	}
	var points []point
	c := chart{Title: p.title, From: spanOf(window), Last: "–"}
	least, most := 0.0, 0.0
	for rest := samples; len(rest) > 0; {
		at := (rest[0].at - begin) / width
		n := 1
		for n < len(rest) && (rest[n].at-begin)/width == at {
			n++
		}
		here := rest[:n]
		rest = rest[n:]
		if at < 0 || at > chartPoints {
			continue
		}
		if p.away != nil && anyOf(here, p.away) {
			if last := len(c.Away) - 1; last >= 0 && c.Away[last].X+c.Away[last].Width == x(int(at)) {
				c.Away[last].Width += x(1)
			} else {
				c.Away = append(c.Away, bar{x(int(at)), x(1)})
			}
		}
		if v, ok := p.value(here); ok {
			if len(points) == 0 {
				least, most = v, v
			}
			least, most = min(least, v), max(most, v)
			points = append(points, point{int(at), v})
			c.Last = p.format(v)
		}
	}
	top := p.top
	if top == 0 {
		top = max(most, 1e-9)
	}
	c.Top = p.format(top)
	var line strings.Builder
	end := func() {
		if line.Len() > 0 {
			c.Lines = append(c.Lines, line.String())
			line.Reset()
		}
	}
	for i, pt := range points {
		if i > 0 && pt.at > points[i-1].at+2 { // looks of a busy machine may come late
			end()
		}
		y := chartHeight - 2 - (chartHeight-4)*min(1, max(0, pt.v/top))
		if line.Len() == 0 {
			fmt.Fprintf(&line, "%d,%.1f", x(pt.at), y) // so that one point alone is seen, too
		}
		fmt.Fprintf(&line, " %d,%.1f", x(pt.at)+1, y)
	}
	end()
	switch {
	case len(points) == 0:
		c.Text = p.title + ": nothing yet"
		c.Top = ""
	default:
		c.Text = fmt.Sprintf("%s: %s now; from %s to %s within %s", p.title, c.Last, p.format(least), p.format(most), c.From)
	}
	if len(c.Away) > 0 {
		c.Text += "; it was away at times"
	}
	return c
}

// x is the place of a point.
func x(at int) int { return at * chartWidth / chartPoints }

func anyOf(samples []sample, is func(sample) bool) bool {
	for _, s := range samples {
		if is(s) {
			return true
		}
	}
	return false
}
