package folder

import (
	"sync"
	"time"
)

// clock is that of the file server, by which files get their times. Clocks of hosts disagree, so ages are computed by this
// one alone. Time that passes is measured by this host.
//
// Where clients set times, as with CephFS and Lustre, it is the clock of this host, and ages are wrong by as much as clocks
// of hosts differ.
type clock struct {
	mu sync.Mutex
	at time.Time // when it was measured
	it time.Time // what it was then
}

// set takes over the time of a file that was written just now.
func (c *clock) set(modified time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.it = time.Now(), modified
}

// age is how long ago a file was written or touched.
func (c *clock) age(modified time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.it.Sub(modified) + time.Since(c.at)
}
