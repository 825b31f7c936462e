package page

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/tier"
)

func TestQuantile(t *testing.T) {
	ms := time.Millisecond
	bounds := []time.Duration{ms, 2 * ms, 10 * ms}
	for _, c := range []struct {
		counts []uint64
		q      float64
		want   time.Duration
	}{
		{[]uint64{0, 0, 0, 0}, 0.5, 0}, {[]uint64{10, 0, 0, 0}, 0.5, ms / 2}, {[]uint64{0, 10, 0, 0}, 0.5, 3 * ms / 2},
		{[]uint64{50, 50, 0, 0}, 0.99, 1980 * time.Microsecond}, {[]uint64{0, 0, 0, 5}, 0.5, 10 * ms}, {[]uint64{99, 0, 1, 0}, 0.99, ms},
		{[]uint64{98, 0, 1, 1}, 0.99, 10 * ms},
	} {
		require.Equal(t, c.want, quantile(c.counts, bounds, c.q), "%v", c)
	}
}

// looks are what a daemon has at a step.
func lookAt(step int, do func(n *Now)) Now {
	n := Now{At: time.Unix(1_800_000_000, 0).Add(time.Duration(step) * Step), Levels: []Level{{LevelState: tier.LevelState{Name: "memory"}}}}
	n.Levels[0].Usage = tier.Usage{Bytes: int64(step), Capacity: 10_000}
	if do != nil {
		do(&n)
	}
	return n
}

// TestHistoryIsBounded: an hour is kept, of any number of looks, in memory that does not grow.
func TestHistoryIsBounded(t *testing.T) {
	var h history
	h.bounds = bounds
	require.Less(t, int(reflect.TypeFor[history]().Size()), 300<<10)
	const all = 3*steps + 7
	for i := range all {
		h.add(lookAt(i, nil))
		require.LessOrEqual(t, len(h.looks), minute+1)
		require.LessOrEqual(t, cap(h.looks), 2*(minute+1))
	}
	now := lookAt(all-1, nil)
	got := h.since(now.At)
	require.Len(t, got, steps)
	for i, s := range got {
		require.Equal(t, now.At.Add(-time.Duration(steps-1-i)*Step).UnixMilli(), s.at)
		require.InDelta(t, float64(all-steps+i)/10_000, float64(s.levels[0].fill), 1e-6)
	}
	before, last, ok := h.last()
	require.True(t, ok)
	require.Equal(t, now, last)
	require.Equal(t, time.Minute, last.At.Sub(before.At))
	require.Empty(t, h.since(now.At.Add(2*span)), "what is older is not shown")
}

// TestRatesAreOfTheLastMinute, also where levels are opened between two looks.
func TestRatesAreOfTheLastMinute(t *testing.T) {
	var h history
	h.bounds = bounds
	h.add(lookAt(0, func(n *Now) { n.Levels = nil }))
	for i := 1; i <= 100; i++ {
		h.add(lookAt(i, func(n *Now) {
			n.Levels[0].Hits, n.Levels[0].Misses, n.Levels[0].Usage.Evicted = int64(30*i), int64(10*i), int64(i)
			n.Ops = []Op{{"pin", []uint64{uint64(3 * i), 0, 0, 0}, time.Duration(3*i) * time.Millisecond}, {"none", []uint64{0, 0, 0, 0}, 0}}
			n.Use.Hits, n.Use.Misses, n.Use.Stored = int64(30*i), int64(6*i), int64(3*i)
			n.Refused = []Refused{{"objects", "full", uint64(i)}, {"requests", "busy", 0}}
		}))
		before, _, _ := h.last()
		require.Len(t, before.Levels, 1, "what was before the levels were opened is not compared")
	}
	before, now, _ := h.last()
	v := &view{Now: now}
	v.rates(before, bounds)
	require.Equal(t, Rates{Calls: 1, Hits: 10, Misses: 2, Stored: 1}, v.Last)
	require.InDelta(t, 0.75, v.Levels[0].HitRate, 1e-9)
	require.EqualValues(t, minute, v.Levels[0].Evicted)
	require.Equal(t, []callView{{"pin", 300, 1, time.Millisecond, "1 µs", "1 µs"}}, v.Calls)
	require.Equal(t, now.Refused[:1], v.Refused)

	v = &view{Now: now}
	v.rates(Now{At: now.At}, bounds)
	require.EqualValues(t, -1, v.Levels[0].HitRate, "there is nothing to compare with")
	require.EqualValues(t, -1, v.Levels[0].Evicted)
}

// TestCurve: gaps are gaps, what is unknown is no point, the scale has the greatest value, and the times when a level
// was away are marked.
func TestCurve(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	at := func(ago time.Duration, v float32, away bool) (s sample) {
		s.at, s.levels[0].fill, s.levels[0].away = now.Add(-ago).UnixMilli(), v, away
		return s
	}
	p := plot{"fill", 0, func(s []sample) (float64, bool) {
		v := float64(s[len(s)-1].levels[0].fill)
		return v, v >= 0
	}, func(s sample) bool { return s.levels[0].away }, func(v float64) string { return percent(v) }}
	width := span / chartPoints
	c := p.draw([]sample{
		at(span, 0, false), at(span-2*width, 0.5, false), // one line, though a point is missing
		at(span/2, 0.25, true), at(span/2-width, -1, true), // a point, and away for two
		at(0, 0.125, false),
	}, now)
	require.Equal(t, []string{"0,58.0 1,58.0 5,2.0", "150,30.0 151,30.0", "300,44.0 301,44.0"}, c.Lines)
	require.Equal(t, []bar{{150, 4}}, c.Away)
	require.Equal(t, chart{Title: "fill", From: "an hour", Top: "50.0 %", Last: "12.5 %", Lines: c.Lines, Away: c.Away,
		Text: "fill: 12.5 % now; from 0.0 % to 50.0 % within an hour; it was away at times"}, c)
	c = p.draw(nil, now)
	require.Equal(t, chart{Title: "fill", From: "10 min", Last: "–", Text: "fill: nothing yet"}, c)
	for ago, want := range map[time.Duration]string{0: "10 min", 10 * time.Minute: "10 min", 11 * time.Minute: "30 min", 31 * time.Minute: "an hour", 2 * span: "an hour"} {
		require.Equal(t, want, p.draw([]sample{at(ago, 0.5, false)}, now).From)
	}
	require.Greater(t, windows[0]/chartPoints, Step, "else each look would be a point of its own, with gaps between")
}

func TestNumbersForPeople(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "–", 1: "1 µs", 999 * time.Microsecond: "999 µs", 1500 * time.Microsecond: "1.5 ms", 2 * time.Second: "2.0 s"} {
		require.Equal(t, want, latency(d))
	}
	for d, want := range map[time.Duration]string{-1: "0 s", 59 * time.Second: "59 s", 61 * time.Minute: "1 h 1 min", time.Hour: "an hour", 72 * time.Hour: "3 days", 90 * time.Second: "1 min"} {
		require.Equal(t, want, spanOf(d))
	}
	for n, want := range map[int64]string{-1: "?", 0: "0", 999: "999", 1000: "1\u202f000", 1234567: "1\u202f234\u202f567"} {
		require.Equal(t, want, count(n))
		require.Equal(t, want, countOf(n))
	}
	require.Equal(t, "7", countOf(uint64(7)))
	require.Equal(t, []string{"0.5", "100", "–", "12.3 %"}, []string{rate(0.5), rate(100), percent(-1), percent(0.123)})
	require.Equal(t, "more than 1.0 s", bounded(time.Second, bounds))
}

// TestMostCalled: a protocol with many kinds of calls does not fill the page with curves.
func TestMostCalled(t *testing.T) {
	var ops []Op
	for _, n := range []uint64{0, 5, 1, 9, 0, 7, 6} {
		ops = append(ops, Op{Within: []uint64{n, 0, 0, 0}})
	}
	require.Equal(t, []int{1, 3, 5, 6}, mostCalled(ops))
	require.Equal(t, []int{1, 2}, mostCalled(ops[:3]))
}
