// Package latency counts how long calls take, for all protocols of the daemon by the same bounds.
package latency

import (
	"slices"
	"sync/atomic"
	"time"
)

// Bounds are those of Counts.Within.
var Bounds = [...]time.Duration{
	10 * time.Microsecond, 25 * time.Microsecond, 50 * time.Microsecond, 100 * time.Microsecond, 250 * time.Microsecond,
	500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, time.Second,
}

// Meter counts calls of a kind. The zero value is ready to use, by any goroutine.
type Meter struct {
	nanoseconds atomic.Int64
	within      [len(Bounds) + 1]atomic.Uint64
}

// Counts are calls. Within counts those that took at most the time of Bounds in the same place, and not that of the
// place before; the last one those that took longer.
type Counts struct {
	Count  uint64
	Total  time.Duration
	Within [len(Bounds) + 1]uint64
}

// Took counts a call.
func (m *Meter) Took(d time.Duration) {
	at, _ := slices.BinarySearch(Bounds[:], d)
	m.nanoseconds.Add(int64(d))
	m.within[at].Add(1)
}

// Counts returns what was counted.
func (m *Meter) Counts() (c Counts) {
	c.Total = time.Duration(m.nanoseconds.Load())
	for i := range c.Within {
		c.Within[i] = m.within[i].Load()
		c.Count += c.Within[i]
	}
	return c
}
