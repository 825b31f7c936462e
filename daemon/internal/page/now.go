package page

import (
	"time"

	"github.com/ringcache/ringcache/daemon/internal/registry"
	"github.com/ringcache/ringcache/tier"
)

// Now is what a daemon has and does at a time. It is made of counters, so that making it costs little.
type Now struct {
	At    time.Time
	Up    time.Duration
	Ready bool
	State string // "ready" with a remark, or why no requests are taken

	Levels []Level // fastest first; nil while there is no store
	Ops    []Op
	Values []Values
	// Refused are requests and objects that were refused, by reason. The list never changes its order.
	Refused []Refused

	Use    registry.Use // since the start
	Recent registry.Use // lately

	Connections, Sessions, Processes, Leases, Waiting int
	Held                                              int64 // bytes

	Fetches, Queued, Backlog int
	InFlight, BacklogBytes   int64
	Clearing                 bool
}

// Level is what a level has. Unknown numbers are -1.
type Level struct {
	tier.LevelState

	Hits, Misses int64 // of objects that were looked for in it; only grow
}

// Op is a kind of request, with the counts of those that took so long: see Options.Bounds. Within has one more
// element than that, for what took longer.
type Op struct {
	Name   string
	Within []uint64
	Total  time.Duration
}

// Values are what clients of another protocol did.
type Values struct {
	Protocol                      string
	Connections                   int
	Hits, Misses, Stored, Dropped int64
}

// Refused counts what was refused. What is the noun, in the plural.
type Refused struct {
	What, Reason string
	Count        uint64
}
