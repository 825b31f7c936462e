package main

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestContendersAreCaches: none keeps more bytes than fit, and none gives away
// what would fit: each holds all of a trace that the capacity has room for.
func TestContendersAreCaches(t *testing.T) {
	for _, c := range contenders {
		for _, w := range workloads {
			const capacity = gib / 2
			tr := w.trace(7, 5000, capacity)
			got := c.make(tr, capacity)
			replay(tr.uses, got)
			var bytes int64
			seen := map[*item]bool{}
			for _, it := range tr.uses {
				if !seen[it] && holds(got, it) {
					bytes += it.size
				}
				seen[it] = true
			}
			if bytes > capacity || bytes == 0 {
				t.Errorf("%s, %s: %d bytes in %d", c.name, w.name, bytes, int64(capacity))
			}
			roomy := c.make(tr, 1<<50)
			missed := float64(len(tr.uses)) * (1 - replay(tr.uses, roomy).hits)
			if want := float64(len(seen)); missed < want-0.5 || missed > want+0.5 {
				t.Errorf("%s, %s: %v misses of %v items with room for all", c.name, w.name, missed, want)
			}
		}
	}
}

// holds asks without a use where a use needs the trace.
func holds(c cache, it *item) bool {
	if s, ok := c.(*scored[*foreseen]); ok {
		_, ok = s.index[it]
		return ok
	}
	return c.get(it)
}

func TestLRUAndFIFO(t *testing.T) {
	a, b, c := &item{size: 1}, &item{size: 1}, &item{size: 2}
	for _, tt := range []struct {
		fifo bool
		left []*item
	}{{false, []*item{a, c}}, {true, []*item{b, c}}} {
		l := newLRU(3, tt.fifo)
		l.put(a)
		l.put(b)
		l.get(a)
		l.put(c)
		for _, it := range []*item{a, b, c} {
			if l.get(it) != slices.Contains(tt.left, it) {
				t.Errorf("fifo %v: kept the wrong ones", tt.fifo)
			}
		}
	}
}

// fixed values an object by its cost.
type fixed struct{}

func (fixed) Add(it *item) float64    { return it.cost }
func (fixed) Hit(float64)             {}
func (fixed) Evict(float64)           {}
func (fixed) Value(v float64) float64 { return v }

// TestVictimsAreOfLeastDensity with few objects, of which the choice is exact.
func TestVictimsAreOfLeastDensity(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	s := newScored(fixed{}, 100)
	for i := range int32(2000) {
		before := slices.Clone(s.objects)
		s.put(&item{id: i, size: 1 + rng.Int64N(10), cost: rng.Float64()})
		var gone, kept float64 = 0, 1e9
		for _, o := range before {
			d := o.it.cost / float64(o.it.size)
			if _, ok := s.index[o.it]; ok {
				kept = min(kept, d)
			} else {
				gone = max(gone, d)
			}
		}
		if gone > kept {
			t.Fatalf("evicted %v, kept %v", gone, kept)
		}
		if s.used > 100 || len(s.index) != len(s.objects) {
			t.Fatal("the books are wrong")
		}
	}
}

func TestTracesAreReproducible(t *testing.T) {
	for _, w := range workloads {
		a, b, c := w.trace(1, 3000, gib), w.trace(1, 3000, gib), w.trace(2, 3000, gib)
		same := func(x, y *item) bool { return *x == *y }
		if len(a.uses) != 3000 || a.deployment != b.deployment || !slices.EqualFunc(a.uses, b.uses, same) {
			t.Errorf("%s: another trace for the same seed", w.name)
		}
		if slices.EqualFunc(a.uses, c.uses, same) {
			t.Errorf("%s: the same trace for another seed", w.name)
		}
	}
}
