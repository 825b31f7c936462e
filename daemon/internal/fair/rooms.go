package fair

// Rooms are what the requests of all protocols of a daemon take. Processes share them: each has a Part.
type Rooms struct {
	Turns                    *Turns  // of requests
	Lookers                  *Turns  // of lookups of stat, which wait for disks and servers
	Requests, Replies, Looks *Budget // bytes
	Bodies                   *Budget // bytes of messages that have bytes of objects

	burst bool // see BurstEnded
}

// Part is what a process has of the rooms, and waits for. It is guarded by what the rooms have.
type Part struct {
	Turns, Lookers                   Queue
	Requests, Replies, Looks, Bodies Share
}

// Used returns the bytes that are taken.
func (r *Rooms) Used() (n int64) {
	for _, b := range []*Budget{r.Requests, r.Replies, r.Looks, r.Bodies} {
		now, _ := b.Used()
		n += now
	}
	return n
}

// muchAtOnce are bytes that are worth a collection of garbage when they are free again.
const muchAtOnce = 4 << 20

// BurstEnded reports, once, that nothing is taken any more after much was. One goroutine calls it.
func (r *Rooms) BurstEnded() bool {
	for _, b := range []*Budget{r.Requests, r.Replies, r.Looks, r.Bodies} {
		r.burst = b.Lately() >= muchAtOnce || r.burst
	}
	if !r.burst || r.Used() > 0 {
		return false
	}
	r.burst = false
	return true
}
