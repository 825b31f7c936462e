package daemon

import (
	"time"

	"github.com/ringcache/ringcache/encoder/wire"
)

// Counters are what a Server has now, and what it did since its start.
type Counters struct {
	// Now.
	Connections, Sessions, Processes, Leases int
	Waiting                                  int   // of Leases: from before the start, and the client has not come back
	Held                                     int64 // bytes that leases have pinned or reserved, each lease for itself

	// Since the start.
	Accepted    uint64 // connections
	Recovered   int    // leases that were taken over at the start
	EndedByTime uint64 // leases whose time passed, or that nobody came back for
	EndedByExit uint64 // leases whose process ended

	Requests []RequestCounter // by Op
	Items    []ItemCounter    // by Op and Status
	Refused  []RefusedCounter // by Kind
}

// RequestCounter counts requests of one kind, and the time from their arrival to the answer.
type RequestCounter struct {
	Op    wire.Op
	Count uint64
	Total time.Duration
	// Within counts the requests that took at most the time of LatencyBounds in the same place, and not that of the place before; the
	// last one those that took longer.
	Within [len(LatencyBounds) + 1]uint64
}

// LatencyBounds are the bounds of RequestCounter.Within.
var LatencyBounds = [...]time.Duration{
	10 * time.Microsecond, 25 * time.Microsecond, 50 * time.Microsecond, 100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, time.Second,
}

// ItemCounter counts answers about single objects.
type ItemCounter struct {
	Op     wire.Op
	Status wire.Status
	Count  uint64
}

// RefusedCounter counts requests that were refused as a whole.
type RefusedCounter struct {
	Kind  wire.Kind
	Count uint64
}
