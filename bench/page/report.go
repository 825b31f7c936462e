package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/ringcache/ringcache/bench/internal/measure"
	"github.com/ringcache/ringcache/bench/internal/stats"
)

// turn is what was measured in a turn.
type turn struct {
	us      []float64 // microseconds of each call
	seconds float64
	cpu     float64 // seconds of the daemon's processor time
	memory  int64   // bytes of the daemon's own memory at its end
	read    int64   // bytes that open pages got
}

// results are the turns in their order.
type results struct{ with, without []turn }

// resources are what a process has taken.
type resources struct {
	cpu    float64 // seconds
	memory int64   // bytes of its own
}

// taken reads what a process has taken.
func taken(pid int) (r resources, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return r, err
	}
	text := string(stat)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:]) // behind the name, which may have blanks
	if len(fields) < 13 {
		return r, errors.New("/proc/PID/stat has too few fields")
	}
	for _, f := range fields[11:13] { // utime, stime
		ticks, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return r, err
		}
		r.cpu += float64(ticks) / 100
	}
	r.memory, err = measure.PrivateMemory(strconv.Itoa(pid))
	return r, err
}

// figure is a figure of a turn.
type figure struct {
	name string
	of   func(t turn) float64
}

var figures = []figure{
	{"median of a call, µs", func(t turn) float64 { return stats.Quantile(stats.Sorted(t.us), 0.5) }},
	{"90 % of calls within, µs", func(t turn) float64 { return stats.Quantile(stats.Sorted(t.us), 0.9) }},
	{"99 % of calls within, µs", func(t turn) float64 { return stats.Quantile(stats.Sorted(t.us), 0.99) }},
	{"calls a second", func(t turn) float64 { return float64(len(t.us)) / t.seconds }},
	{"processor time of the daemon, ms a second", func(t turn) float64 { return 1000 * t.cpu / t.seconds }},
	{"processor time of the daemon by call, µs", func(t turn) float64 { return 1e6 * t.cpu / max(1, float64(len(t.us))) }},
}

// compared is a figure without the page and with it: medians of turns, and the ratios of pairs of neighbours.
type compared struct {
	without, with  float64
	ratio, low, up float64 // the median of the ratios, and the bounds that it has with a probability of 95 %
}

// compare compares a figure.
func (r *results) compare(f figure) (c compared) {
	n := min(len(r.with), len(r.without))
	var with, without, ratios []float64
	for i := range n {
		a, b := f.of(r.with[i]), f.of(r.without[i])
		with, without, ratios = append(with, a), append(without, b), append(ratios, stats.Ratio(a, b))
	}
	c.with, c.without, c.ratio = stats.Median(with), stats.Median(without), stats.Median(ratios)
	slices.Sort(ratios)
	// The sign test: how many of the pairs are below the median is binomial.
	k := int(math.Floor(float64(n)/2 - 0.98*math.Sqrt(float64(n))))
	c.low, c.up = ratios[max(0, min(k, n-1))], ratios[min(n-1, max(0, n-1-k))]
	return c
}

// Write writes the table.
func (r *results) Write(w io.Writer, o options) {
	n := min(len(r.with), len(r.without))
	fmt.Fprintf(w, "# A daemon with an open page\n\n%d sessions make %d calls a second (seven pins of one of %d objects, a release); %d pages are open or not, by turns of %v:\n%d of each. Each turn with the page is compared with its neighbour without it.\n\n",
		o.Sessions, o.Rate, o.Objects, o.Pages, o.Turn, n)
	fmt.Fprintf(w, "| | without | with | with/without | 95 %% of it |\n|---|---|---|---|---|\n")
	for _, f := range figures {
		c := r.compare(f)
		fmt.Fprintf(w, "| %s | %.1f | %.1f | %.3f | %.3f to %.3f |\n", f.name, c.without, c.with, c.ratio, c.low, c.up)
	}
	var calls int
	var read, seconds float64
	for _, t := range slices.Concat(r.with, r.without) {
		calls += len(t.us)
	}
	for _, t := range r.with {
		read, seconds = read+float64(t.read), seconds+t.seconds
	}
	first, last := r.memory()
	fmt.Fprintf(w, "\n%d calls. A page got %.1f KiB a second. The daemon's own memory (RssAnon): %.1f MiB in the first quarter\nof the turns, %.1f MiB in the last.\n",
		calls, read/1024/max(seconds, 1e-9)/float64(o.Pages), first/(1<<20), last/(1<<20))
}

// memory returns the median of the daemon's memory in the first and in the last quarter of the turns with the page.
func (r *results) memory() (first, last float64) {
	q := max(1, len(r.with)/4)
	median := func(turns []turn) float64 {
		var all []float64
		for _, t := range turns {
			all = append(all, float64(t.memory))
		}
		return stats.Median(all)
	}
	return median(r.with[:q]), median(r.with[len(r.with)-q:])
}

// Check reports that calls are slower than they may be.
func (r *results) Check(o options) error {
	if c := r.compare(figures[0]); o.Goal > 0 && c.low > 1+o.Goal/100 {
		return fmt.Errorf("calls take %.1f %% longer with the page, and may take %.1f %%", 100*(c.ratio-1), o.Goal)
	}
	return nil
}
