package main

import (
	"slices"
	"testing"

	"github.com/ringcache/ringcache/bench/internal/policy"
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
			seen := map[*policy.Item]bool{}
			for _, it := range tr.uses {
				if !seen[it] && holds(got, it) {
					bytes += it.Size
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
func holds(c policy.Cache, it *policy.Item) bool {
	if s, ok := c.(*policy.Scored[*policy.Foreseen]); ok {
		return s.Has(it)
	}
	return c.Get(it)
}

func TestLRUAndFIFO(t *testing.T) {
	a, b, c := &policy.Item{Size: 1}, &policy.Item{Size: 1}, &policy.Item{Size: 2}
	for _, tt := range []struct {
		fifo bool
		left []*policy.Item
	}{{false, []*policy.Item{a, c}}, {true, []*policy.Item{b, c}}} {
		l := newLRU(3, tt.fifo)
		l.Put(a)
		l.Put(b)
		l.Get(a)
		l.Put(c)
		for _, it := range []*policy.Item{a, b, c} {
			if l.Get(it) != slices.Contains(tt.left, it) {
				t.Errorf("fifo %v: kept the wrong ones", tt.fifo)
			}
		}
	}
}

func TestTracesAreReproducible(t *testing.T) {
	for _, w := range workloads {
		a, b, c := w.trace(1, 3000, gib), w.trace(1, 3000, gib), w.trace(2, 3000, gib)
		same := func(x, y *policy.Item) bool { return *x == *y }
		if len(a.uses) != 3000 || a.deployment != b.deployment || !slices.EqualFunc(a.uses, b.uses, same) {
			t.Errorf("%s: another trace for the same seed", w.name)
		}
		if slices.EqualFunc(a.uses, c.uses, same) {
			t.Errorf("%s: the same trace for another seed", w.name)
		}
	}
}
