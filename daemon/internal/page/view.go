package page

import (
	"cmp"
	"embed"
	"fmt"
	"html/template"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ringcache/ringcache/daemon/internal/registry"
	"github.com/ringcache/ringcache/inspect"
	"github.com/ringcache/ringcache/internal/sizes"
	"github.com/ringcache/ringcache/internal/terminal"
)

//go:embed templates/*.html
var templateFiles embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"text": terminal.Text, "size": size, "count": countOf, "percent": percent, "span": spanOf, "latency": latency,
	"clock": clock, "stamp": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
}).ParseFS(templateFiles, "templates/*.html"))

const (
	shownSessions = 50
	shownEvents   = 50
)

// view is what the parts are made of.
type view struct {
	Version, Segment string
	Size             int64
	Now              Now
	Levels           []levelView
	Charts           []chart // nil: as they were
	Calls            []callView
	Refused          []Refused // that there were
	Last             Rates
	Sessions         []registry.Holding
	More             int // sessions that are not shown
	Events           []event
	Map              *mapView // nil: as it was
	MapError         string
}

// Rates are of the last minute, per second.
type Rates struct{ Calls, Hits, Misses, Stored float64 }

type levelView struct {
	Level
	Fill, HeldPart float64 // 0 to 100; Fill is -1 if it is unknown
	HitRate        float64 // 0 to 1 within a minute; -1 without look-ups
	Evicted        int64   // within a minute; -1 is unknown
}

type callView struct {
	Name       string
	Count      uint64 // since the start
	Rate       float64
	Mean       time.Duration // within a minute; 0 without calls
	Half, Most string        // so many took at most that: half of them, and 99 %
}

// view makes a view. The caller has rendering.
func (p *Page) view(eventsOnly bool) *view {
	v := &view{Version: p.o.Version, Segment: p.o.Segment, Size: p.o.Size, Events: p.o.Events.last(shownEvents)}
	if eventsOnly {
		return v
	}
	p.mu.Lock()
	before, now, ok := p.history.last()
	p.mu.Unlock()
	if v.Now = now; !ok || time.Since(now.At) > fresh {
		v.Now = p.o.Now()
	}
	v.Sessions = p.o.Holdings(shownSessions)
	v.More = max(0, v.Now.Sessions-len(v.Sessions))
	if v.Now.Levels != nil {
		due := !time.Now().Before(p.segment.next)
		p.segment.look(p.o.Segment, p.o.Dir)
		if due && p.segment.drawn != nil {
			v.Map = newMapView(p.segment.drawn)
		} else if due {
			v.Map = &mapView{Caption: "the segment can't be looked at: " + p.segment.err.Error()}
		}
	}
	if !ok {
		before = v.Now
	}
	v.rates(before, p.o.Bounds)
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.charts) >= chartRest {
		p.charts = time.Now()
		v.Charts = p.history.draw(v.Now)
	}
	return v
}

// rates fills in what was counted since before.
func (v *view) rates(before Now, bounds []time.Duration) {
	seconds := max(v.Now.At.Sub(before.At).Seconds(), 1e-3)
	for i, l := range v.Now.Levels {
		x := levelView{Level: l, Fill: -1, HitRate: -1, Evicted: -1}
		if f := fill(l); f >= 0 {
			x.Fill = 100 * min(1, f)
			x.HeldPart = 100 * min(1, float64(max(0, l.Usage.Held))/float64(l.Usage.Capacity))
		}
		if i < len(before.Levels) {
			b := before.Levels[i]
			if hits, misses := l.Hits-b.Hits, l.Misses-b.Misses; hits+misses > 0 {
				x.HitRate = float64(hits) / float64(hits+misses)
			}
			if l.Usage.Evicted >= 0 && b.Usage.Evicted >= 0 {
				x.Evicted = l.Usage.Evicted - b.Usage.Evicted
			}
		}
		v.Levels = append(v.Levels, x)
	}
	for i, op := range v.Now.Ops {
		c := callView{Name: op.Name, Count: sum(op.Within), Half: latency(0), Most: latency(0)}
		if c.Count == 0 {
			continue
		}
		d := within(before.Ops, i, op)
		if n := sum(d); n > 0 {
			total := op.Total
			if i < len(before.Ops) {
				total -= before.Ops[i].Total
			}
			c.Rate, c.Mean = float64(n)/seconds, total/time.Duration(n)
			c.Half, c.Most = bounded(quantile(d, bounds, 0.5), bounds), bounded(quantile(d, bounds, 0.99), bounds)
		}
		v.Last.Calls += c.Rate
		v.Calls = append(v.Calls, c)
	}
	for _, r := range v.Now.Refused {
		if r.Count > 0 {
			v.Refused = append(v.Refused, r)
		}
	}
	use, was := v.Now.Use, before.Use
	v.Last.Hits = float64(use.Hits-was.Hits) / seconds
	v.Last.Misses = float64(use.Misses-was.Misses) / seconds
	v.Last.Stored = float64(use.Stored-was.Stored) / seconds
}

// draw draws the curves of the last hour.
func (h *history) draw(now Now) (all []chart) {
	samples := h.since(now.At)
	share := func(v float64) string { return percent(v) }
	for i, l := range now.Levels[:min(len(now.Levels), mostLevels)] {
		name := terminal.Text(l.Name)
		away := func(s sample) bool { return s.levels[i].away }
		if l.Usage.Capacity > 0 {
			all = append(all, plot{name + ": full", 1, func(s []sample) (float64, bool) {
				f := s[len(s)-1].levels[i].fill
				return float64(f), f >= 0
			}, away, share}.draw(samples, now.At))
		}
		all = append(all, plot{name + ": hit rate", 1, func(s []sample) (float64, bool) {
			var hits, misses float64
			for _, x := range s {
				hits, misses = hits+float64(x.levels[i].hits), misses+float64(x.levels[i].misses)
			}
			return hits / max(hits+misses, 1), hits+misses > 0
		}, away, share}.draw(samples, now.At))
	}
	all = append(all, plot{"calls a second", 0, func(s []sample) (float64, bool) {
		n := 0.0
		for _, x := range s {
			n += float64(x.calls)
		}
		return n / float64(len(s)) / Step.Seconds(), true
	}, nil, rate}.draw(samples, now.At))
	for _, i := range mostCalled(now.Ops) {
		op := now.Ops[i]
		c := plot{op.Name + ": 99 % within", 0, func(s []sample) (float64, bool) {
			most := float32(0)
			for _, x := range s {
				most = max(most, x.p99[i])
			}
			return float64(most), most > 0
		}, nil, func(v float64) string { return latency(time.Duration(v * float64(time.Second))) }}.draw(samples, now.At)
		if len(c.Lines) > 0 {
			all = append(all, c)
		}
	}
	return append(all, plot{"pending writes", 0, func(s []sample) (float64, bool) {
		most := int32(0)
		for _, x := range s {
			most = max(most, x.pending)
		}
		return float64(most), true
	}, nil, func(v float64) string { return count(int64(v)) }}.draw(samples, now.At))
}

const plottedOps = 4 // those that are called most have a curve

// mostCalled returns the places of the ops that are called most, in their order.
func mostCalled(ops []Op) []int {
	var all []int
	for i, op := range ops[:min(len(ops), mostOps)] {
		if sum(op.Within) > 0 {
			all = append(all, i)
		}
	}
	slices.SortStableFunc(all, func(a, b int) int { return cmp.Compare(sum(ops[b].Within), sum(ops[a].Within)) })
	all = all[:min(len(all), plottedOps)]
	slices.Sort(all)
	return all
}

// mapView is a segment, drawn.
type mapView struct {
	Caption string
	Runs    []mapRun
	Legend  []mapState
	Width   int
	Height  int
}

// mapRun are neighbours that look the same.
type mapRun struct {
	Class       string
	X, Y, Width int
	Opacity     string
	Text        string
}

type mapState struct{ Class, Name, Size string }

var mapStates = []inspect.State{inspect.Damaged, inspect.InUse, inspect.Reserved, inspect.Retired, inspect.Evictable, inspect.Unknown}

const free = "free"

func newMapView(m *inspect.Map) *mapView {
	v := &mapView{Caption: m.Caption(), Width: mapColumns, Height: (len(m.Cells) + mapColumns - 1) / mapColumns}
	sums := map[string]int64{}
	add := func(to map[string]int64, c inspect.Cell) {
		for s, n := range c.States {
			to[string(s)] += n
		}
		to[free] += c.Size - c.Used()
	}
	var run map[string]int64 // bytes by state of the last run
	for i, c := range m.Cells {
		add(sums, c)
		class := strings.ReplaceAll(string(c.Main()), " ", "-")
		opacity := "1"
		switch used := c.Used(); {
		case class == "":
			class = free
		case used < c.Size/2:
			opacity = "0.5"
		case used < c.Size:
			opacity = "0.75"
		}
		last := len(v.Runs) - 1
		if i%mapColumns == 0 || v.Runs[last].Class != class || v.Runs[last].Opacity != opacity {
			v.Runs = append(v.Runs, mapRun{Class: class, X: i % mapColumns, Y: i / mapColumns, Opacity: opacity})
			run, last = map[string]int64{}, last+1
		}
		add(run, c)
		v.Runs[last].Width++
		v.Runs[last].Text = statesText(run)
	}
	for _, s := range mapStates {
		if n := sums[string(s)]; n > 0 {
			v.Legend = append(v.Legend, mapState{strings.ReplaceAll(string(s), " ", "-"), string(s), size(n)})
		}
	}
	v.Legend = append(v.Legend, mapState{free, free, size(sums[free])})
	return v
}

func statesText(sums map[string]int64) string {
	var parts []string
	for _, s := range mapStates {
		if n := sums[string(s)]; n > 0 {
			parts = append(parts, size(n)+" "+string(s))
		}
	}
	if n := sums[free]; n > 0 {
		parts = append(parts, size(n)+" "+free)
	}
	return strings.Join(parts, ", ")
}

// What follows writes numbers for people. Unknown ones are "?".

func size(n int64) string {
	if n < 0 {
		return "?"
	}
	return sizes.Text(n)
}

// count writes a number with spaces between thousands.
func count(n int64) string {
	if n < 0 {
		return "?"
	}
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	return s
}

// countOf is count for templates, whose numbers have several types.
func countOf(n any) string {
	v := reflect.ValueOf(n)
	if v.CanUint() {
		return count(int64(min(v.Uint(), math.MaxInt64)))
	}
	return count(v.Int())
}

func percent(share float64) string {
	if share < 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100*share)
}

func rate(v float64) string {
	if v >= 100 {
		return count(int64(v))
	}
	return fmt.Sprintf("%.1f", v)
}

// latency writes a time in the unit that fits.
func latency(d time.Duration) string {
	switch {
	case d <= 0:
		return "–"
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", max(1, d.Microseconds()))
	case d < time.Second:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// bounded writes a quantile. Beyond the last bound nothing is known.
func bounded(d time.Duration, bounds []time.Duration) string {
	if last := bounds[len(bounds)-1]; d >= last {
		return "more than " + latency(last)
	}
	return latency(d)
}

// spanOf writes how long something has lasted.
func spanOf(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", max(0, d/time.Second))
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d == time.Hour:
		return "an hour"
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%d days", d/(24*time.Hour))
}

// clock writes a time of the last day without its date.
func clock(t time.Time) string {
	if time.Since(t) > 20*time.Hour {
		return t.Format(time.DateTime)
	}
	return t.Format(time.TimeOnly)
}
