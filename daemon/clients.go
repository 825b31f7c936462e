package daemon

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringcache/ringcache/daemon/internal/promise"
	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/internal/loglimit"
	"github.com/ringcache/ringcache/tier"
)

// maxClients bounds the clients of a reply: each takes at most 600 bytes of it.
const maxClients = 1024

// visitors are the sessions that have connections, and their processes.
type visitors struct {
	begun      time.Time
	came, went loglimit.Limit
	full       loglimit.Limit

	mu        sync.Mutex // guards what follows
	sessions  map[string]*visit
	processes map[*promise.Client]*presence
	recent    recent
}

// visit is a session from its first connection to its last. Its fields are guarded by the lock of visitors.
type visit struct {
	session, label, space string
	client                *promise.Client
	process               *presence
	connections           int // the next one takes the session over before the last one ends
	since, last           time.Time
	use                   wire.Use
}

// presence is a process with its visits.
type presence struct {
	visits    int
	announced string // by which name in the log
	since     time.Time
	use       wire.Use // of visits that are over, too
}

func (v *visitors) begin(now time.Time) {
	v.begun = now
	v.came.Burst, v.went.Burst = 30, 30 // engines start and end together
	v.sessions, v.processes = map[string]*visit{}, map[*promise.Client]*presence{}
}

// enter notes that a connection uses a session. space is that of its fingerprint, if it has one.
func (s *Server) enter(client *promise.Client, session, label, space string) *visit {
	x, came := s.visitors.enter(client, session, label, space)
	if came {
		s.logCame(client, label, space)
	}
	return x
}

func (v *visitors) enter(client *promise.Client, session, label, space string) (x *visit, came bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	p := v.processes[client]
	if p == nil {
		p = &presence{since: now}
		v.processes[client] = p
	}
	x = v.sessions[session]
	if x == nil || x.client != client {
		x = &visit{session: session, client: client, process: p, since: now}
		v.sessions[session] = x
		p.visits++
	}
	x.connections++
	x.label, x.last = label, now
	if space != "" {
		x.space = space
		came = x.announce()
	}
	return x, came
}

// announce reports whether the log has yet to say that the process came, which it says once. Who only asks
// for statistics, such as a probe, is not announced. The caller has the lock.
func (x *visit) announce() bool {
	if x.process.announced != "" {
		return false
	}
	x.process.announced = x.label
	return true
}

// logCame logs without the lock of visitors, as everything here does.
func (s *Server) logCame(client *promise.Client, label, space string) {
	s.visitors.came.Info(s.log, "a client came", "pid", client.PID(), "client", label, "space", space)
}

// leave notes that a connection does not use a session any more.
func (s *Server) leave(x *visit) {
	if p := s.visitors.leave(x); p != nil && p.announced != "" {
		s.visitors.went.Info(s.log, "a client went", "pid", x.client.PID(), "client", p.announced, "after", time.Since(p.since).Round(time.Millisecond).String(),
			"hits", p.use.Hits, "misses", p.use.Misses, "stored", p.use.Stored)
	}
}

// leave returns the process if that was its last visit: nobody else has it then.
func (v *visitors) leave(x *visit) *presence {
	v.mu.Lock()
	defer v.mu.Unlock()
	if x.connections--; x.connections > 0 {
		return nil
	}
	if v.sessions[x.session] == x { // or a process of another name has it by now
		delete(v.sessions, x.session)
	}
	p := x.process
	if p.visits--; p.visits > 0 {
		return nil
	}
	delete(v.processes, x.client)
	return p
}

// count counts what a request was answered.
func (c *connection) count(q *wire.Request, p *wire.Reply) {
	s := c.server
	if p.Error == nil {
		s.meter.items(q.Op, p.Items)
	}
	if c.session == nil {
		return
	}
	use := useOf(q.Op, p)
	use.Stored, c.session.stored = int64(c.session.stored), 0
	s.meter.stored.Add(use.Stored)
	label, space, came := s.visitors.count(c.session.visit, q, use)
	if came {
		s.logCame(c.client, label, space)
	}
	if q.Op == wire.Reserve && slices.ContainsFunc(p.Items, func(it wire.Item) bool { return it.Status == wire.StatusFull }) {
		s.visitors.full.Warn(s.log, "there is no room in memory for an object that a client wants to store: leases hold what is there, or its process has all that it may have",
			"pid", c.client.PID(), "client", label)
	}
}

// count returns the session's label and space for the log, and reports whether its process came with this request.
func (v *visitors) count(x *visit, q *wire.Request, use wire.Use) (label, space string, came bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	x.last = time.Now()
	if q.Space != "" && len(q.Space) <= tier.MaxSpace {
		x.space = q.Space
	}
	if q.Op != wire.Hello && q.Op != wire.Stat {
		came = x.announce()
	}
	if use != (wire.Use{}) {
		add(&x.use, use)
		add(&x.process.use, use)
		v.recent.add(x.last.Sub(v.begun), use)
	}
	return x.label, x.space, came
}

// useOf counts the hits and misses of an answer. What was stored can't be seen in it: `ok` is also the answer
// about what was there.
func useOf(op wire.Op, p *wire.Reply) (use wire.Use) {
	if op != wire.Pin || p.Error != nil {
		return use
	}
	for _, it := range p.Items {
		switch {
		case it.Status == wire.StatusHit:
			use.Hits++
		case slices.Contains(missStatuses, it.Status):
			use.Misses++
		}
	}
	return use
}

// missStatuses are answers to Pin after which the client makes the object itself.
var missStatuses = []wire.Status{wire.StatusMiss, wire.StatusUnavailable, wire.StatusFull, wire.StatusTooLarge}

func add(to *wire.Use, n wire.Use) {
	to.Hits += n.Hits
	to.Misses += n.Misses
	to.Stored += n.Stored
}

const (
	recentStep  = 10 * time.Second
	recentSteps = 30 // five minutes
)

// recent counts what was asked for lately, by steps of time since the start.
type recent struct {
	steps [recentSteps]struct {
		number int64
		use    wire.Use
	}
}

func (r *recent) add(at time.Duration, use wire.Use) {
	n := int64(at / recentStep)
	x := &r.steps[n%recentSteps]
	if x.number != n {
		x.number, x.use = n, wire.Use{}
	}
	add(&x.use, use)
}

// sum returns the use of the last steps, the present one among them.
func (r *recent) sum(at time.Duration) wire.Use {
	n := int64(at / recentStep)
	first := max(0, n-recentSteps+1)
	sum := wire.Use{Seconds: int64((at - time.Duration(first)*recentStep) / time.Second)}
	for i := range r.steps {
		if x := &r.steps[i]; x.number >= first && x.number <= n {
			add(&sum, x.use)
		}
	}
	return sum
}

// clientList lists the sessions that have a connection, in the order of their processes and names, but at most 1024.
func (s *Server) clientList() []wire.ClientState {
	v := &s.visitors
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	out := make([]wire.ClientState, 0, len(v.sessions))
	for x := range maps.Values(v.sessions) {
		out = append(out, wire.ClientState{
			Session: x.session, Client: x.label, PID: x.client.PID(), Space: x.space, Seconds: int64(now.Sub(x.since) / time.Second),
			Idle: int64(now.Sub(x.last) / time.Second), Hits: x.use.Hits, Misses: x.use.Misses, Stored: x.use.Stored,
		})
	}
	slices.SortFunc(out, func(a, b wire.ClientState) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), strings.Compare(a.Client, b.Client), strings.Compare(a.Session, b.Session))
	})
	return out[:min(len(out), maxClients)]
}

// len returns the number of sessions that have a connection.
func (v *visitors) len() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.sessions)
}

// use returns what was asked for lately.
func (v *visitors) use() *wire.Use {
	v.mu.Lock()
	defer v.mu.Unlock()
	sum := v.recent.sum(time.Since(v.begun))
	return &sum
}
