package daemon

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/ringcache/ringcache/daemon/internal/latency"
	"github.com/ringcache/ringcache/daemon/wire"
)

// Counters are what a Server has now, and what it did since its start.
type Counters struct {
	// Now.
	Connections, Sessions, Processes, Leases int
	Waiting                                  int   // of Leases: from before the start, and the client has not come back
	Held                                     int64 // bytes that leases have pinned or reserved, each lease for itself
	Messages                                 int64 // bytes that large requests, large replies and lookups of stat take

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
	// Within counts the requests that took at most the time of LatencyBounds in the same place, and not that
	// of the place before; the last one those that took longer.
	Within [len(LatencyBounds) + 1]uint64
}

// LatencyBounds are the bounds of RequestCounter.Within.
var LatencyBounds = latency.Bounds

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

// Counters reports what the server has now, and what it has done since its start.
func (s *Server) Counters() Counters {
	n := s.registry.Counts()
	c := Counters{
		Sessions: n.Sessions, Processes: n.Processes, Leases: n.Leases, Waiting: n.Waiting, Held: n.Held,
		Recovered: n.Recovered, EndedByTime: n.EndedByTime, EndedByExit: n.EndedByExit,
		Accepted: s.meter.accepted.Load(),
	}
	s.mu.Lock()
	c.Connections = len(s.conns)
	s.mu.Unlock()
	c.Messages = s.rooms.Used()
	s.meter.fill(&c)
	return c
}

var (
	meterOps = [...]wire.Op{wire.Hello, wire.Pin, wire.Get, wire.Reserve, wire.Commit, wire.Abort, wire.Release,
		wire.Stat, wire.Clear}
	meterStatuses = [...]wire.Status{
		wire.StatusHit, wire.StatusMiss, wire.StatusPending, wire.StatusReserved, wire.StatusExists, wire.StatusFull,
		wire.StatusTooLarge, wire.StatusOK, wire.StatusEnded, wire.StatusUnavailable, wire.StatusInvalid,
	}
	meterKinds = [...]wire.Kind{
		wire.KindVersion, wire.KindPermission, wire.KindInvalid, wire.KindUnsupported, wire.KindHello, wire.KindBusy,
		wire.KindClosing, wire.KindInternal,
	}
)

// meter counts what a server does.
type meter struct {
	accepted atomic.Uint64
	requests [len(meterOps)]latency.Meter
	answers  [len(meterOps)][len(meterStatuses)]atomic.Uint64
	refused  [len(meterKinds)]atomic.Uint64
}

// took counts a request that was answered. One that could not be read has no op.
func (m *meter) took(op wire.Op, d time.Duration) {
	i := slices.Index(meterOps[:], op)
	if i < 0 {
		return
	}
	m.requests[i].Took(d)
}

// items counts the answers of a request, which was not refused as a whole.
func (m *meter) items(op wire.Op, items []wire.Item) {
	i := slices.Index(meterOps[:], op)
	if i < 0 {
		return
	}
	for _, it := range items {
		if j := slices.Index(meterStatuses[:], it.Status); j >= 0 {
			m.answers[i][j].Add(1)
		}
	}
}

// refuse counts a request that was refused as a whole.
func (m *meter) refuse(kind wire.Kind) {
	if i := slices.Index(meterKinds[:], kind); i >= 0 {
		m.refused[i].Add(1)
	}
}

// fill reports all ops and kinds, and the statuses that there were.
func (m *meter) fill(c *Counters) {
	for i, op := range meterOps {
		n := m.requests[i].Counts()
		c.Requests = append(c.Requests, RequestCounter{Op: op, Count: n.Count, Total: n.Total, Within: n.Within})
		for j, status := range meterStatuses {
			if n := m.answers[i][j].Load(); n > 0 {
				c.Items = append(c.Items, ItemCounter{op, status, n})
			}
		}
	}
	for i, kind := range meterKinds {
		c.Refused = append(c.Refused, RefusedCounter{kind, m.refused[i].Load()})
	}
}
