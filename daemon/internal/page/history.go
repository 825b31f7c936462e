package page

import (
	"slices"
	"time"
)

const (
	// Step is the time between two looks at the counters.
	Step = 3 * time.Second
	// span is how long looks are kept.
	span  = time.Hour
	steps = int(span / Step)
	// minute is how many steps rates are averaged over.
	minute = int(time.Minute / Step)

	// What is kept is of fixed size, so there is a most of everything. A daemon has fewer.
	mostLevels = 6
	mostOps    = 32
)

// sample is what was counted within a step.
type sample struct {
	at      int64 // Unix time in milliseconds
	calls   uint32
	pending int32
	levels  [mostLevels]levelSample
	p99     [mostOps]float32 // seconds; 0 without calls
}

type levelSample struct {
	fill         float32 // 0 to 1; -1 is unknown
	hits, misses uint32
	away         bool
}

// history is an hour of samples, and what was there a minute ago.
type history struct {
	bounds  []time.Duration
	samples [steps]sample
	next    int // where the next one goes
	n       int

	looks []Now // the last ones, oldest first: at most one more than minute
}

// add adds a look.
func (h *history) add(now Now) {
	if n := len(h.looks); n > 0 && len(h.looks[n-1].Levels) != len(now.Levels) {
		h.looks = nil // the levels were opened, or closed: what was counted before can't be compared
	}
	before := now
	if n := len(h.looks); n > 0 {
		before = h.looks[n-1]
	}
	h.samples[h.next] = h.between(before, now)
	h.next = (h.next + 1) % steps
	h.n = min(h.n+1, steps)
	if len(h.looks) > minute {
		h.looks = slices.Delete(h.looks, 0, 1)
	}
	h.looks = append(h.looks, now)
}

// between returns the sample of what was counted between two looks.
func (h *history) between(before, now Now) sample {
	s := sample{at: now.At.UnixMilli(), pending: int32(min(now.Backlog, 1<<31-1))}
	for i, l := range now.Levels[:min(len(now.Levels), mostLevels)] {
		x := levelSample{fill: float32(fill(l)), away: l.Away}
		if i < len(before.Levels) {
			x.hits = uint32(max(0, l.Hits-before.Levels[i].Hits))
			x.misses = uint32(max(0, l.Misses-before.Levels[i].Misses))
		}
		s.levels[i] = x
	}
	for i, op := range now.Ops[:min(len(now.Ops), mostOps)] {
		d := within(before.Ops, i, op)
		s.calls += uint32(sum(d))
		s.p99[i] = float32(quantile(d, h.bounds, 0.99).Seconds())
	}
	return s
}

// within returns how many calls of op, which has the place i, took how long since before.
func within(before []Op, i int, op Op) []uint64 {
	d := slices.Clone(op.Within)
	if i < len(before) {
		for j := range d {
			d[j] -= min(d[j], before[i].Within[j])
		}
	}
	return d
}

// fill returns how full a level is, 0 to 1, or -1.
func fill(l Level) float64 {
	if l.Usage.Capacity <= 0 || l.Usage.Bytes < 0 {
		return -1
	}
	return float64(l.Usage.Bytes) / float64(l.Usage.Capacity)
}

func sum(counts []uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// quantile estimates a quantile of times, of which so many are within bounds: evenly between the bounds of its
// place. What is beyond the last bound is that bound. It is 0 without times.
func quantile(counts []uint64, bounds []time.Duration, q float64) time.Duration {
	n := sum(counts)
	if n == 0 {
		return 0
	}
	rank, before := q*float64(n), 0.0
	for i, c := range counts[:len(bounds)] {
		if here := float64(c); before+here >= rank && here > 0 {
			low := time.Duration(0)
			if i > 0 {
				low = bounds[i-1]
			}
			return low + time.Duration(float64(bounds[i]-low)*(rank-before)/here)
		}
		before += float64(c)
	}
	return bounds[len(bounds)-1]
}

// since yields the samples of the last hour, oldest first.
func (h *history) since(now time.Time) (out []sample) {
	begin := now.Add(-span).UnixMilli()
	for i := range h.n {
		if s := h.samples[(h.next-h.n+i+steps)%steps]; s.at >= begin {
			out = append(out, s)
		}
	}
	return out
}

// last returns the newest look and the one that is a minute older, or the oldest that there is. ok is false
// before the first look.
func (h *history) last() (before, now Now, ok bool) {
	if len(h.looks) == 0 {
		return Now{}, Now{}, false
	}
	return h.looks[0], h.looks[len(h.looks)-1], true
}
