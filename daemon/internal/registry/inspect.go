package registry

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ringcache/ringcache/tier"
)

// Lease describes a lease.
type Lease struct {
	Protocol         string // that has the session; empty for one that no registry made
	ID               string // SESSION/NAME
	Label            string // of the session
	PID              int    // 0 is unknown
	Until            time.Time
	Expired          bool // Until has passed, and reservations are left
	Pinned, Reserved int
	Bytes            int64
	Waiting          bool // from before the start, and nobody has joined the session
	Has              int  // of the objects that the caller has named
}

// all returns the sessions, in the order of their keys.
func (r *Registry) all() []*session {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Values(r.sessions), func(a, b *session) int { return cmp.Compare(a.key, b.key) })
}

// Leases lists the leases, in the order of their protocols, sessions and names, but at most n, and how many of
// some objects each has.
func (r *Registry) Leases(n int, keys ...tier.Key) []Lease {
	wanted := make(map[tier.Key]struct{}, len(keys))
	for _, k := range keys {
		wanted[k] = struct{}{}
	}
	var out []Lease
	for _, s := range r.all() {
		out = append(out, s.list(wanted)...)
		if len(out) >= n {
			return out[:n]
		}
	}
	return out
}

func (s *session) list(wanted map[tier.Key]struct{}) []Lease {
	s.request.Lock()
	defer s.request.Unlock()
	r := s.registry
	r.mu.Lock()
	of := Lease{Label: s.label, PID: s.client.PID(), Waiting: s.waiting}
	r.mu.Unlock()
	var out []Lease
	for _, l := range s.all() {
		now := l.t.Summary()
		if now.Ended {
			continue
		}
		x := of
		x.Protocol, x.ID, _ = strings.Cut(l.t.ID(), "/")
		if strings.HasPrefix(s.key, "//") { // of no registry
			x.Protocol, x.ID = "", l.t.ID()
		}
		x.Until, x.Expired, x.Pinned, x.Reserved, x.Bytes = now.Until, now.Expired, now.Pinned, now.Reserved, now.Bytes
		x.Has = l.has(now, wanted)
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b Lease) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// has returns how many of some objects a lease has. It costs as much as the fewer of both, since whoever asks does so
// of all leases.
func (l *lease) has(now tier.LeaseSummary, wanted map[tier.Key]struct{}) (n int) {
	if now.Pinned+now.Reserved < len(wanted) {
		st := l.t.State()
		for _, k := range slices.Concat(st.Pinned, st.Reserved) {
			if _, ok := wanted[k]; ok {
				n++
			}
		}
		return n
	}
	for _, p := range l.t.Held(slices.Collect(maps.Keys(wanted))) {
		if !errors.Is(p.Err, tier.ErrNotFound) {
			n++
		}
	}
	return n
}

// Counts returns the counts.
func (r *Registry) Counts() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.counts
	n.Processes, n.Sessions, n.Clearing = len(r.clients), len(r.sessions), r.clearer.running
	n.Recent, n.RecentTime = r.recent.sum(time.Since(r.begun))
	return n
}

// Check verifies everything that must hold while no call is under way, for tests: each lease of the
// store has a name, sessions and clients are charged for what the store has, and counts are what they
// count.
func (r *Registry) Check() error {
	sessions := r.all()
	for _, s := range sessions {
		s.request.Lock()
		defer s.request.Unlock()
	}
	states := map[string]tier.LeaseState{}
	sizes := map[tier.Key]int64{} // of what leases have
	for _, st := range r.store.Leases() {
		states[st.ID] = st
	}
	for _, s := range sessions {
		for _, l := range s.all() {
			st := states[l.t.ID()]
			for _, p := range l.t.Held(slices.Concat(st.Pinned, st.Reserved)) {
				sizes[p.Object.Key] = p.Object.Size
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	type sums struct {
		sessions, leases int
		charged          charged
	}
	perClient := map[*Client]*sums{}
	for c := range r.clients {
		perClient[c] = &sums{}
	}
	leases, waiting, entered, connected, held := 0, 0, 0, 0, int64(0)
	visits := map[*Client]int{}
	for _, s := range sessions {
		c := perClient[s.client]
		if _, ok := s.client.sessions[s]; c == nil || !ok || r.sessions[s.key] != s || s.removed {
			return fmt.Errorf("session %s is in the registry, and should not be, or its client is not", s.key)
		}
		if s.user == nil && len(s.leases) == 0 {
			return fmt.Errorf("session %s has no user and no lease", s.key)
		}
		var has charged
		for name, l := range s.leases {
			st, ok := states[l.t.ID()]
			delete(states, l.t.ID())
			if !ok || l.s != s || l.name != name || l.removed {
				return fmt.Errorf("lease %s is not in the store, or is known by another name", l.t.ID())
			}
			for _, k := range slices.Concat(st.Pinned, st.Reserved) {
				has.add(1, sizes[k])
			}
			if s.waiting {
				waiting++
			}
		}
		if has != s.charged {
			return fmt.Errorf("session %s has %+v, and is charged for %+v", s.key, has, s.charged)
		}
		leases += len(s.leases)
		if s.user != nil {
			connected++
			visits[s.client]++
		}
		held += has.bytes
		c.sessions++
		c.leases += len(s.leases)
		c.charged.add(has.objects, has.bytes)
	}
	for id := range states {
		return fmt.Errorf("lease %s is in the store, and not in the registry", id)
	}
	for c, n := range perClient {
		entered += c.entered
		if n.sessions != len(c.sessions) || n.leases != c.leases || n.charged != c.charged ||
			visits[c] != c.visit.connections {
			return fmt.Errorf("a client has %d sessions, %d of them connected, %d leases and %+v, and should have %+v, %d connected", len(c.sessions), c.visit.connections, c.leases, c.charged, *n, visits[c])
		}
		if c.entered == 0 && len(c.sessions) == 0 {
			return fmt.Errorf("a client has neither connections nor sessions")
		}
	}
	if n := r.counts; n.Leases != leases || n.Waiting != waiting || n.Held != held || n.Connected != connected ||
		r.entered != entered {
		return fmt.Errorf("the counts are %+v, with %d connections; there are %d leases, %d waiting, %d bytes, %d connections", n, r.entered, leases, waiting, held, entered)
	}
	return nil
}
