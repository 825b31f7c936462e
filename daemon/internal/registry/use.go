package registry

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Use counts objects: found in memory, not found, and published.
type Use struct{ Hits, Misses, Stored int64 }

func (u *Use) add(n Use) {
	u.Hits += n.Hits
	u.Misses += n.Misses
	u.Stored += n.Stored
}

// visit is the time from the first connection of a session, or of a process, to the end of the last one.
type visit struct {
	connections int // of a process: sessions that have one
	announced   string
	space       string
	since, last time.Time
	use         Use
}

// Visit describes a session that has a connection.
type Visit struct {
	Protocol, Session string
	Label             string
	PID               int    // 0 is unknown
	Space             string // of which it asked last
	Since, Last       time.Time
	Use               Use
}

// arrive begins the visit of a session. The caller has the lock.
func (s *session) arrive() {
	now := time.Now()
	s.visit = visit{since: now, last: now}
	if s.client.visit.connections == 0 {
		s.client.visit.since = now
	}
	s.client.visit.connections++
	s.registry.counts.Connected++
}

// depart ends the visit of a session, and logs that of its process if that was the last one. The caller
// has the lock.
func (s *session) depart() {
	r, v := s.registry, &s.client.visit
	s.user = nil
	r.counts.Connected--
	if v.connections--; v.connections > 0 {
		return
	}
	if v.announced != "" {
		r.went.Info(r.log, "a client went", "pid", s.client.PID(), "client", v.announced, "after",
			time.Since(v.since).Round(time.Millisecond).String(),
			"hits", v.use.Hits, "misses", v.use.Misses, "stored", v.use.Stored)
	}
	*v = visit{}
}

// Count counts what a request was answered. space is the one that it was about, if any. A probe is
// quiet, such as one that asks for statistics alone: the log does not say that it came. Count returns
// the session's label, for the log.
func (u *Session) Count(space string, use Use, quiet bool) (label string) {
	s, r := u.s, u.s.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	s.visit.last = time.Now()
	if space != "" {
		s.visit.space = space
	}
	if v := &s.client.visit; v.announced == "" && !quiet {
		v.announced = s.label
		r.came.Info(r.log, "a client came", "pid", s.client.PID(), "client", s.label, "space", s.visit.space)
	}
	if use != (Use{}) {
		for _, to := range []*Use{&s.visit.use, &s.client.visit.use, &r.counts.Use} {
			to.add(use)
		}
		r.recent.add(s.visit.last.Sub(r.begun), use)
	}
	return s.label
}

// Visits lists the sessions that have a connection, in the order of their processes, labels and IDs, but
// at most n.
func (r *Registry) Visits(n int) []Visit {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Visit, 0, r.counts.Connected)
	for _, s := range r.sessions {
		if s.user != nil {
			out = append(out, s.described())
		}
	}
	slices.SortFunc(out, func(a, b Visit) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), strings.Compare(a.Label, b.Label),
			strings.Compare(a.Session, b.Session))
	})
	return out[:min(len(out), n)]
}

// described describes the visit of a session, or its last one. The caller has the lock.
func (s *session) described() Visit {
	x := Visit{
		Label: s.label, PID: s.client.PID(), Space: s.visit.space, Since: s.visit.since, Last: s.visit.last,
		Use: s.visit.use,
	}
	x.Protocol, x.Session, _ = strings.Cut(s.key, "/")
	return x
}

// Holding describes a session, with or without a connection, and what its leases have pinned or reserved,
// each lease for itself.
type Holding struct {
	Visit               // the last one if it has no connection
	Connected      bool // it has one
	Waiting        bool // it is from before the start, and nobody has joined it
	Leases         int
	Objects, Bytes int64
}

// Holdings lists sessions, those with the most bytes first, and of equals those first that asked last, but at most
// n. It reads counts alone, so that it costs no more with many leases.
func (r *Registry) Holdings(n int) []Holding {
	r.mu.Lock()
	out := make([]Holding, 0, len(r.sessions))
	for _, s := range r.sessions {
		out = append(out, Holding{
			Visit: s.described(), Connected: s.user != nil, Waiting: s.waiting, Leases: len(s.leases),
			Objects: s.charged.objects, Bytes: s.charged.bytes,
		})
	}
	r.mu.Unlock()
	slices.SortFunc(out, func(a, b Holding) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), b.Last.Compare(a.Last), strings.Compare(a.Session, b.Session))
	})
	return out[:min(len(out), n)]
}

const (
	recentStep  = 10 * time.Second
	recentSteps = 30 // five minutes
)

// recent counts what was asked for lately, by steps of time since the start.
type recent struct {
	steps [recentSteps]struct {
		number int64
		use    Use
	}
}

func (r *recent) add(at time.Duration, use Use) {
	n := int64(at / recentStep)
	x := &r.steps[n%recentSteps]
	if x.number != n {
		x.number, x.use = n, Use{}
	}
	x.use.add(use)
}

// sum returns the use of the last steps, the present one among them, and how long they are.
func (r *recent) sum(at time.Duration) (sum Use, of time.Duration) {
	n := int64(at / recentStep)
	first := max(0, n-recentSteps+1)
	for i := range r.steps {
		if x := &r.steps[i]; x.number >= first && x.number <= n {
			sum.add(x.use)
		}
	}
	return sum, at - time.Duration(first)*recentStep
}
