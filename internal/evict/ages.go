package evict

import (
	"math"
	"math/bits"
)

// past finds, for each use of the cache, which objects and ghosts grow older with it. No two have
// the same last use, so each is written down under the time of that: whatever grows from one
// age into the next at a time is found by one look for each age, without lists.
type past struct {
	// classes has for each time the class, plus 1, of what was used then and not since, or
	// 0. The time t is at t modulo the length, a power of two; the length doubles until it
	// covers the time from the begin of the last age on. What is older than the length is
	// in the last age, and has no place any more.
	classes []uint8
}

const (
	minPast = 1 << 10
	maxPast = 1 << 20
)

// starts are the least times since the last use of the ages.
var starts = func() (s [ages + 1]int64) {
	for a := range s {
		s[a] = start(a)
	}
	return s
}()

// start is the least time since the last use of an age: 0, 1, 2, 3, 4, 6, 8, 12.
func start(age int) int64 {
	if age < 2 {
		return int64(age)
	}
	return int64(2+age%2) << (age/2 - 1)
}

// ageOf is the age of what was used last before so many uses.
func ageOf(since int64) int {
	if since < 2 {
		return int(since)
	}
	k := bits.Len64(uint64(since)) - 1
	return min(2*k+int(since>>(k-1)&1), ages-1)
}

func newPast() past { return past{make([]uint8, minPast)} }

// mark writes down when an object was used last.
func (p *past) mark(h *history) { p.classes[h.last&int64(len(p.classes)-1)] = h.class + 1 }

// unmark undoes mark.
func (p *past) unmark(h *history, now int64) {
	if now-h.last < int64(len(p.classes)) { // else the place is another's by now
		p.classes[h.last&int64(len(p.classes)-1)] = 0
	}
}

// tick counts what grows older as the time becomes now.
func (p *past) tick(now int64, l *learned) {
	if now == int64(len(p.classes)) && now < maxPast {
		p.classes = append(p.classes, make([]uint8, now)...)
	}
	classes := p.classes
	for a, s := range starts[1:ages] {
		at := now - s
		if at <= 0 {
			break
		}
		if c := classes[at&int64(len(classes)-1)]; c != 0 {
			l.outlived(c-1, a)
		}
	}
}

// logs are the logarithms of times that are usual between two uses.
var logs = func() (t [1 << 10]float64) {
	for i := range t {
		t[i] = math.Log2(float64(i))
	}
	return t
}()

func log2(n int64) float64 {
	if n < int64(len(logs)) {
		return logs[n]
	}
	return math.Log2(float64(n))
}
