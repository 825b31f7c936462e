package main

import "math"

// score is an object of the rivals that are a value per object.
type score struct {
	size, cost float64
	freq       float64
	weight     float64 // GDSF's
	at         float64 // a use: for LRFU the last, for hyperbolic the first
}

// gdsf is Greedy-Dual-Size-Frequency: frequency times cost per byte on top of
// the value of the last victim. Without cost and size it is LFU-DA.
type gdsf struct {
	lfuda bool
	floor float64
}

func (g *gdsf) weigh(s *score) {
	if g.lfuda {
		s.weight = g.floor + s.freq
	} else {
		s.weight = g.floor + s.freq*s.cost/s.size
	}
}

func (g *gdsf) Add(it *item) *score {
	s := &score{size: float64(it.size), cost: it.cost, freq: 1}
	g.weigh(s)
	return s
}

func (g *gdsf) Hit(s *score) {
	s.freq++
	g.weigh(s)
}

func (g *gdsf) Evict(s *score)         { g.floor = max(g.floor, s.weight) }
func (g *gdsf) Value(s *score) float64 { return s.weight * s.size }

// lrfu is a count of uses that halves with time, remembered for all keys ever.
type lrfu struct {
	half   float64 // in uses
	now    float64
	ghosts map[*item]*score
}

func newLRFU(half float64) *lrfu { return &lrfu{half: half, ghosts: map[*item]*score{}} }

func (l *lrfu) decayed(s *score) float64 { return s.freq * math.Exp2((s.at-l.now)/l.half) }

func (l *lrfu) use(s *score) {
	l.now++
	s.freq = l.decayed(s) + 1
	s.at = l.now
}

func (l *lrfu) Add(it *item) *score {
	s := l.ghosts[it]
	if s == nil {
		s = &score{size: float64(it.size), cost: it.cost}
		l.ghosts[it] = s
	}
	l.use(s)
	return s
}

func (l *lrfu) Hit(s *score)           { l.use(s) }
func (l *lrfu) Evict(*score)           {}
func (l *lrfu) Value(s *score) float64 { return l.decayed(s) * s.cost }

// hyperbolic is uses over the time since the first of them, remembered for all
// keys ever.
type hyperbolic struct {
	now    float64
	ghosts map[*item]*score
}

func newHyperbolic() *hyperbolic { return &hyperbolic{ghosts: map[*item]*score{}} }

func (h *hyperbolic) Add(it *item) *score {
	h.now++
	s := h.ghosts[it]
	if s == nil {
		s = &score{size: float64(it.size), cost: it.cost, at: h.now}
		h.ghosts[it] = s
	}
	s.freq++
	return s
}

func (h *hyperbolic) Hit(s *score) {
	h.now++
	s.freq++
}
func (h *hyperbolic) Evict(*score)           {}
func (h *hyperbolic) Value(s *score) float64 { return s.cost * s.freq / (h.now - s.at + 1) }

// oracle goes by the next use of each object, which no policy can: it shows what
// there is to gain. It is a heuristic (cost per byte and time), not the optimum.
type oracle struct {
	next []int // by use
	now  int
}

type foreseen struct {
	next int
	cost float64
}

func newOracle(uses []*item) *oracle {
	o := &oracle{next: make([]int, len(uses)), now: -1}
	seen := map[*item]int{}
	for i := len(uses) - 1; i >= 0; i-- {
		o.next[i] = seen[uses[i]] // 0: never
		seen[uses[i]] = i
	}
	return o
}

func (o *oracle) Add(it *item) *foreseen {
	o.now++
	return &foreseen{o.next[o.now], it.cost}
}

func (o *oracle) Hit(f *foreseen) {
	o.now++
	f.next = o.next[o.now]
}

func (o *oracle) Evict(*foreseen) {}

func (o *oracle) Value(f *foreseen) float64 {
	if f.next == 0 {
		return 0
	}
	return f.cost / float64(f.next-o.now)
}
