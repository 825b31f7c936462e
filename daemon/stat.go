package daemon

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ringcache/ringcache/daemon/internal/fair"
	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/tier"
)

const (
	lookers   = 4               // lookups of clients at a time
	lookedFor = 5 * time.Second // how long what was found is answered
)

// look is a lookup.
type look struct {
	keys []tier.Key
	room int64 // bytes taken for it, and for what it finds
}

// looks are what a session has asked for: one lookup at a time, and what the last ones found, until that is too old.
type looks struct {
	rooms *fair.Rooms
	part  *fair.Part

	mu      sync.Mutex // guards what follows
	running bool
	ended   bool // nobody asks any more
	found   map[tier.Key]tier.Located
	room    int64       // bytes taken for found
	old     *time.Timer // ends found; nil if there is none
	times   int         // that found was begun
}

// stat answers Stat. A name that was not asked for a moment ago is pending.
func (c *connection) stat(q *wire.Request) *wire.Reply {
	s := c.server
	state := s.State()
	p := &wire.Reply{State: &state}
	if q.List {
		keys := make([]tier.Key, len(q.Names))
		for i, name := range q.Names {
			keys[i] = tier.Key{Space: q.Space, Name: name}
		}
		p.Leases, p.Clients = s.leases(keys), s.clientList()
		c.work.cost += len(p.Leases) * len(keys) / namesOfTurn
		if s.layouts != nil {
			p.Layouts = s.layouts()
		}
	}
	if len(q.Names) == 0 {
		return p
	}
	c.work.cost += len(q.Names) / namesOfTurn
	var missing []tier.Key
	if p.Items, missing = c.session.looks.answer(q); len(missing) > 0 {
		s.look(c.session.looks, missing)
	}
	return p
}

// answer answers for names, and returns those that are to be looked up.
func (l *looks) answer(q *wire.Request) (items []wire.Item, missing []tier.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	items = make([]wire.Item, len(q.Names))
	for i, name := range q.Names {
		k := tier.Key{Space: q.Space, Name: name}
		found, ok := l.found[k]
		switch {
		case k.Validate() != nil:
			items[i].Status = wire.StatusInvalid
		case ok:
			items[i] = locatedItem(found)
		default:
			items[i].Status = wire.StatusPending
			missing = append(missing, k)
		}
	}
	return items, missing
}

// look has names looked up in all levels, which does input and output, in the background, and by process in
// turns. Each session has one lookup at a time, so there are no more than sessions.
func (s *Server) look(l *looks, keys []tier.Key) {
	job := l.ask(keys)
	if job == nil {
		return
	}
	s.work.Go(func() {
		s.rooms.Lookers.Acquire(&l.part.Lookers, make(chan struct{}, 1))
		found := s.o.Store.Stat(s.ending, job.keys)
		s.rooms.Lookers.Release(&l.part.Lookers, len(job.keys)/namesOfTurn)
		l.keep(job, found)
	})
}

// ask returns a lookup of names, of as many as there is room for: the client asks again. It returns nil if
// there is no room, or while a lookup is on its way.
func (l *looks) ask(keys []tier.Key) *look {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running {
		return nil
	}
	for ; len(keys) > 0; keys = keys[:len(keys)/2] {
		n := int64(len(keys)) * (tier.MaxNote + tier.MaxName + tier.MaxTenant) // the most that may be found
		for _, k := range keys {
			n += roomOfLook(k, tier.Object{})
		}
		if l.rooms.Looks.TryAcquire(&l.part.Looks, n) {
			l.running = true
			return &look{keys: keys, room: n}
		}
	}
	return nil
}

// keep keeps what a lookup has found, for some seconds.
func (l *looks) keep(job *look, found []tier.Located) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = false
	if l.ended {
		l.rooms.Looks.Release(&l.part.Looks, job.room)
		return
	}
	if len(l.found)+len(job.keys) > wire.MaxNames {
		l.forget()
	}
	if l.found == nil {
		l.found = make(map[tier.Key]tier.Located, len(job.keys))
		l.times++
		n := l.times
		l.old = time.AfterFunc(lookedFor, func() { l.expire(n) })
	}
	var used int64
	for i, k := range job.keys {
		if before, ok := l.found[k]; ok {
			used -= roomOfLook(k, before.Object)
		}
		l.found[k] = found[i]
		used += roomOfLook(k, found[i].Object)
	}
	l.room += used
	l.rooms.Looks.Release(&l.part.Looks, job.room-used)
}

// roomOfLook returns how many bytes an object takes that was found, or nothing.
func roomOfLook(k tier.Key, o tier.Object) int64 {
	return int64(bytesOfLook + len(k.Space) + len(k.Name) + len(o.Note) + len(o.Parent) + len(o.Tenant))
}

// expire drops what is too old, unless something else has been found since.
func (l *looks) expire(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.times == n {
		l.forget()
	}
}

// end drops everything, for good.
func (l *looks) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.forget()
}

// forget drops what was found. The caller has the lock.
func (l *looks) forget() {
	if l.old != nil {
		l.old.Stop()
	}
	l.rooms.Looks.Release(&l.part.Looks, l.room)
	l.found, l.old, l.room = nil, nil, 0
}

// locatedItem answers for a name that was looked up in all levels.
func locatedItem(found tier.Located) wire.Item {
	switch {
	case found.Err == nil:
		return wire.Item{Status: wire.StatusHit, Size: found.Object.Size, Note: found.Object.Note, Levels: found.Levels}
	case errors.Is(found.Err, context.Canceled): // the daemon ends
		return wire.Item{Status: wire.StatusPending}
	}
	return wire.Item{Status: statusOf(found.Err, wire.StatusHit)}
}
