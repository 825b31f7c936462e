package blake3

import (
	"runtime"
	"sync/atomic"
)

// crew is who hashes long writes: their callers, and helpers as far as processors are free. There is one for the
// process, as there is one GOMAXPROCS.
type crew struct {
	working atomic.Int64 // callers, and helpers from before they start
	skips   atomic.Int64 // how many of the next writes get no helpers
	pause   atomic.Int64 // what skips was set to last
}

// maxPause bounds how long a machine that has become idle is taken for a busy one, in long writes.
const maxPause = 63

// engage counts up to n helpers as working, and returns how many: as many as there are processors for, none soon
// after others didn't pay.
func (c *crew) engage(n int) int {
	if c.skips.Load() > 0 {
		c.skips.Add(-1)
		return 0
	}
	for {
		now := c.working.Load()
		n = min(n, runtime.GOMAXPROCS(0)-int(now))
		if n <= 0 {
			return 0
		}
		if c.working.CompareAndSwap(now, now+int64(n)) {
			return n
		}
	}
}

// learn counts whether helpers made a write faster. Where they don't, other programs have the processors: a helper
// starts late, or stops in the middle of its piece while the caller waits, and to wake it takes 50 µs on a virtual
// machine. So the next try comes after 1, 3, 7 and so on up to 63 writes.
func (c *crew) learn(paid bool) {
	if paid {
		c.pause.Store(0)
		return
	}
	pause := min(2*c.pause.Load()+1, maxPause)
	c.pause.Store(pause)
	c.skips.Store(pause)
}
