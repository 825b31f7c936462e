package policy

import "math"

// Score is an object of the rules that only need its uses.
type Score struct {
	size, cost float64
	freq       float64
	weight     float64 // GDSF's
	at         float64 // a use: for Order and LRFU the last, for Hyperbolic the first
}

func newScore(it *Item) *Score { return &Score{size: float64(it.Size), cost: it.Cost} }

// Order is LRU, or FIFO, whatever the sizes.
type Order struct {
	now  float64
	fifo bool
}

// NewLRU gives up what was not used for longest.
func NewLRU() *Order { return &Order{} }

// NewFIFO gives up what was put first.
func NewFIFO() *Order { return &Order{fifo: true} }

// Add is called when an object is put.
func (o *Order) Add(it *Item) *Score {
	o.now++
	s := newScore(it)
	s.at = o.now
	return s
}

// Hit is called when an object is used.
func (o *Order) Hit(s *Score) {
	if o.now++; !o.fifo {
		s.at = o.now
	}
}

// Evict is called when an object goes.
func (o *Order) Evict(*Score) {}

// Value is what an object is worth now.
func (o *Order) Value(s *Score) float64 { return s.at * s.size }

// GDSF is Greedy-Dual-Size-Frequency: frequency times cost per byte on top of
// the value of the last victim. Without cost and size it is LFU-DA.
type GDSF struct {
	lfuda bool
	floor float64
}

// NewGDSF makes Greedy-Dual-Size-Frequency.
func NewGDSF() *GDSF { return &GDSF{} }

// NewLFUDA makes LFU with dynamic aging.
func NewLFUDA() *GDSF { return &GDSF{lfuda: true} }

func (g *GDSF) weigh(s *Score) {
	if g.lfuda {
		s.weight = g.floor + s.freq
	} else {
		s.weight = g.floor + s.freq*s.cost/s.size
	}
}

// Add is called when an object is put.
func (g *GDSF) Add(it *Item) *Score {
	s := newScore(it)
	s.freq = 1
	g.weigh(s)
	return s
}

// Hit is called when an object is used.
func (g *GDSF) Hit(s *Score) {
	s.freq++
	g.weigh(s)
}

// Evict is called when an object goes.
func (g *GDSF) Evict(s *Score) { g.floor = max(g.floor, s.weight) }

// Value is what an object is worth now.
func (g *GDSF) Value(s *Score) float64 { return s.weight * s.size }

// LRFU is a count of uses that halves with time, remembered for all keys ever.
type LRFU struct {
	half   float64 // in uses
	now    float64
	ghosts map[*Item]*Score
}

// NewLRFU makes one whose counts halve in so many uses.
func NewLRFU(half float64) *LRFU { return &LRFU{half: half, ghosts: map[*Item]*Score{}} }

func (l *LRFU) decayed(s *Score) float64 { return s.freq * math.Exp2((s.at-l.now)/l.half) }

func (l *LRFU) use(s *Score) {
	l.now++
	s.freq = l.decayed(s) + 1
	s.at = l.now
}

// Add is called when an object is put.
func (l *LRFU) Add(it *Item) *Score {
	s := l.ghosts[it]
	if s == nil {
		s = newScore(it)
		l.ghosts[it] = s
	}
	l.use(s)
	return s
}

// Hit is called when an object is used.
func (l *LRFU) Hit(s *Score) { l.use(s) }

// Evict is called when an object goes.
func (l *LRFU) Evict(*Score) {}

// Value is what an object is worth now.
func (l *LRFU) Value(s *Score) float64 { return l.decayed(s) * s.cost }

// Hyperbolic is uses over the time since the first of them, remembered for all
// keys ever.
type Hyperbolic struct {
	now    float64
	ghosts map[*Item]*Score
}

// NewHyperbolic makes one of an empty cache.
func NewHyperbolic() *Hyperbolic { return &Hyperbolic{ghosts: map[*Item]*Score{}} }

// Add is called when an object is put.
func (h *Hyperbolic) Add(it *Item) *Score {
	h.now++
	s := h.ghosts[it]
	if s == nil {
		s = newScore(it)
		s.at = h.now
		h.ghosts[it] = s
	}
	s.freq++
	return s
}

// Hit is called when an object is used.
func (h *Hyperbolic) Hit(s *Score) {
	h.now++
	s.freq++
}

// Evict is called when an object goes.
func (h *Hyperbolic) Evict(*Score) {}

// Value is what an object is worth now.
func (h *Hyperbolic) Value(s *Score) float64 { return s.cost * s.freq / (h.now - s.at + 1) }
