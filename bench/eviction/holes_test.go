package main

import (
	"math/rand/v2"
	"testing"
)

// TestFitSpaces: runs never overlap, free bytes are all found again, and an
// item is refused only if no hole is large enough.
func TestFitSpaces(t *testing.T) {
	const capacity = 1 << 16
	for name, fit := range map[string]func([]hole, int64) (int, bool){"best": bestFit, "first": firstFit,
		"two ends": twoEnds(1 << 11)} {
		rng := rand.New(rand.NewPCG(7, 8))
		s := newFitSpace(capacity, fit)
		var keys []int64
		for range 5000 {
			if rng.IntN(2) == 0 && len(keys) > 0 {
				i := rng.IntN(len(keys))
				s.free(keys[i])
				keys[i] = keys[len(keys)-1]
				keys = keys[:len(keys)-1]
			} else {
				size := 1 + rng.Int64N(1<<12)
				before := s.largest()
				key, ok := s.alloc(size)
				if ok != (before >= s.extent(size)) {
					t.Fatalf("%s: %d bytes with a hole of %d: %v", name, size, before, ok)
				}
				if ok {
					keys = append(keys, key)
				}
			}
			free := make([]bool, capacity)
			for i, h := range s.holes {
				if i > 0 && s.holes[i-1].off+s.holes[i-1].size >= h.off {
					t.Fatalf("%s: holes %v", name, s.holes)
				}
				for at := h.off; at < h.off+h.size; at++ {
					free[at] = true
				}
			}
			for off, size := range s.sizes {
				for at := off; at < off+size; at++ {
					if free[at] {
						t.Fatalf("%s: byte %d is given out twice", name, at)
					}
					free[at] = true
				}
			}
			for at, ok := range free {
				if !ok {
					t.Fatalf("%s: byte %d is lost", name, at)
				}
			}
		}
	}
}

func TestFits(t *testing.T) {
	holes := []hole{{0, 30}, {100, 10}, {200, 40}, {300, 20}}
	for _, tt := range []struct {
		name  string
		fit   func([]hole, int64) (int, bool)
		size  int64
		i     int
		upper bool
	}{
		{"best", bestFit, 15, 3, false}, {"best", bestFit, 41, -1, false},
		{"first", firstFit, 15, 0, false}, {"first", firstFit, 35, 2, false}, {"first", firstFit, 41, -1, false},
		{"small", twoEnds(15), 15, 0, false}, {"large", twoEnds(14), 15, 3, true},
		{"large", twoEnds(14), 41, -1, false},
	} {
		if i, upper := tt.fit(holes, tt.size); i != tt.i || i >= 0 && upper != tt.upper {
			t.Errorf("%s fit for %d: hole %d, upper %v", tt.name, tt.size, i, upper)
		}
	}
}

// TestSearchHasWhatItMeasures: every counted put evicts and looks, and more
// chunks are looked at for a larger put.
func TestSearchHasWhatItMeasures(t *testing.T) {
	same, large := measureSearch(300, 0, 50), measureSearch(300, 8*mib, 50)
	for _, s := range []search{same, large} {
		if len(s.all) != 50 || s.evicted < 50 || s.looked < s.evicted || micro(s.look) <= 0 ||
			micro(s.all) < micro(s.look) {
			t.Errorf("%+v", s)
		}
	}
	if large.looked <= same.looked || large.evicted < 8*50 {
		t.Errorf("%+v for large puts, %+v for the usual", large, same)
	}
}
