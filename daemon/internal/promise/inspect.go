package promise

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ringcache/ringcache/tier"
)

// Lease describes a lease.
type Lease struct {
	ID               string // SESSION/NAME
	Label            string // of the session
	PID              int    // 0 is unknown
	Until            time.Time
	Lapsed           bool // Until has passed, and reservations are left
	Pinned, Reserved int
	Bytes            int64
	Waiting          bool // from before the start, and nobody has joined the session
}

func (b *Book) all() []*session {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.SortedFunc(maps.Values(b.sessions), func(a, b *session) int { return cmp.Compare(a.id, b.id) })
}

// Leases lists the leases, in the order of their sessions and names, but at most n.
func (b *Book) Leases(n int) []Lease {
	var out []Lease
	for _, s := range b.all() {
		out = append(out, s.list()...)
		if len(out) >= n {
			return out[:n]
		}
	}
	return out
}

func (s *session) list() []Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Lease, 0, len(s.leases))
	for _, l := range s.leases {
		out = append(out, Lease{
			ID: l.t.ID(), Label: s.label, PID: s.client.PID(), Until: l.until, Lapsed: l.lapsed,
			Pinned: len(l.items) - l.reserved, Reserved: l.reserved, Bytes: l.bytes, Waiting: s.waiting,
		})
	}
	slices.SortFunc(out, func(a, b Lease) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Counts returns the counts.
func (b *Book) Counts() Counts {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.counts
	n.Processes, n.Sessions = len(b.clients), len(b.sessions)
	return n
}

// Check verifies everything that must hold while no call is under way, for tests: the book and the store
// agree about every lease, the counts of things and bytes are what they count, and an object is counted with
// the size that leases have of it, but for leases whose time has passed, whose objects the store may have
// replaced.
func (b *Book) Check() error {
	sessions := b.all()
	for _, s := range sessions {
		s.mu.Lock()
		defer s.mu.Unlock()
	}
	states := map[string]tier.LeaseState{}
	for _, st := range b.store.Leases() {
		states[st.ID] = st
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	type sums struct {
		sessions, leases int
		items, held      int64
	}
	perClient := map[*Client]*sums{}
	for c := range b.clients {
		perClient[c] = &sums{}
	}
	var items, held, bytes int64
	objects := map[tier.Key]int{}
	leases, waiting, filed, lapsed := 0, 0, 0, 0
	for _, s := range sessions {
		c := perClient[s.client]
		if c == nil || b.sessions[s.id] != s || s.ended {
			return fmt.Errorf("session %s is in the book, and should not be, or its client is not", s.id)
		}
		if _, ok := s.client.sessions[s]; !ok {
			return fmt.Errorf("session %s is not among those of its client", s.id)
		}
		if s.user == nil && len(s.leases) == 0 {
			return fmt.Errorf("session %s has no user and no lease", s.id)
		}
		c.sessions++
		for name, l := range s.leases {
			st, ok := states[l.t.ID()]
			delete(states, l.t.ID())
			if l.s != s || l.name != name {
				return fmt.Errorf("lease %s is not filed by its name", l.t.ID())
			}
			if err := l.check(st, ok); err != nil {
				return fmt.Errorf("lease %s: %w", l.t.ID(), err)
			}
			leases++
			c.leases++
			c.items += int64(len(l.items))
			c.held += l.bytes
			held += l.bytes
			items += int64(len(l.items))
			passed := !b.now().Before(l.until)
			for k, it := range l.items {
				objects[k]++
				if h := b.objects[k]; h.size != it.size && !(passed && !it.reserved) {
					return fmt.Errorf("lease %s has %d bytes of object %v, counted are %d", l.t.ID(), it.size, k, h.size)
				}
			}
			if s.waiting {
				waiting++
			}
			if l.lapsed {
				lapsed++
			} else {
				filed++
			}
		}
	}
	for id := range states {
		return fmt.Errorf("lease %s is in the store, and not in the book", id)
	}
	for k, h := range b.objects {
		if objects[k] != h.leases {
			return fmt.Errorf("%d leases have object %v, counted are %d", objects[k], k, h.leases)
		}
		bytes += h.size
	}
	if len(objects) != len(b.objects) || items != b.items || bytes != b.bytes {
		return fmt.Errorf("leases have %d objects, %d times, with %d bytes, counted are %d, %d, %d", len(objects), items, bytes, len(b.objects), b.items, b.bytes)
	}
	entered := 0
	for c, n := range perClient {
		entered += c.entered
		if n.sessions != len(c.sessions) || n.leases != c.leases || n.items != c.items || n.held != c.held {
			return fmt.Errorf("a client has %d sessions, %d leases, %d objects, %d bytes, and should have %+v", len(c.sessions), c.leases, c.items, c.held, *n)
		}
		if c.entered == 0 && len(c.sessions) == 0 {
			return fmt.Errorf("a client has neither connections nor sessions")
		}
	}
	if n := b.counts; n.Leases != leases || n.Waiting != waiting || n.Held != held || len(b.due) != filed || len(b.writing) != lapsed || b.entered != entered {
		return fmt.Errorf("the counts are %+v, with %d leases that end by time, %d whose time has passed and %d connections; there are %d leases, %d waiting, %d bytes, %d and %d of them ending, %d connections",
			n, len(b.due), len(b.writing), b.entered, leases, waiting, held, filed, lapsed, entered)
	}
	return nil
}

// check compares a lease with the store, which may have let its pins go already if its time has passed.
func (l *lease) check(st tier.LeaseState, there bool) error {
	passed := !l.s.book.now().Before(l.until)
	if !there && !(passed && l.reserved == 0) {
		return fmt.Errorf("it is not in the store")
	}
	var bytes int64
	reserved := 0
	for k, it := range l.items {
		bytes += it.size
		in := st.Pinned
		if it.reserved {
			reserved++
			in = st.Reserved
		}
		if !slices.Contains(in, k) && !(passed && !it.reserved) {
			return fmt.Errorf("it has %v, reserved %v, and in the store it does not", k, it.reserved)
		}
	}
	switch {
	case len(st.Pinned)+len(st.Reserved) > len(l.items):
		return fmt.Errorf("it has %d objects, and in the store %d and %d", len(l.items), len(st.Pinned), len(st.Reserved))
	case bytes != l.bytes || reserved != l.reserved:
		return fmt.Errorf("it counts %d bytes and %d reservations, and has %d and %d", l.bytes, l.reserved, bytes, reserved)
	case l.lapsed && (reserved == 0 || reserved != len(l.items)):
		return fmt.Errorf("its time has passed, and it has %d objects, of which %d are reserved", len(l.items), reserved)
	case l.in == nil || l.lapsed != (l.in == &l.s.book.writing):
		return fmt.Errorf("it is not filed where it ends by time, lapsed %v", l.lapsed)
	}
	return nil
}
