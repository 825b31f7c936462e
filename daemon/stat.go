package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/ringcache/ringcache/encoder/wire"
	"github.com/ringcache/ringcache/tier"
)

const (
	lookers   = 4               // lookups of clients at a time
	lookQueue = 256             // lookups that wait for their turn
	lookedFor = 5 * time.Second // how long what was found is answered
)

// looker looks objects up in all levels, which does input and output, in the background.
type looker struct {
	jobs chan *look
}

// begin starts the workers, which end with the server.
func (l *looker) begin(s *Server) {
	l.jobs = make(chan *look, lookQueue)
	for range lookers {
		s.work.Go(func() {
			for {
				select {
				case <-s.ending.Done():
					return
				case job := <-l.jobs:
					job.found = s.o.Store.Stat(job.ctx, job.keys)
					close(job.done)
				}
			}
		})
	}
}

// look is a lookup. found is there when done is closed.
type look struct {
	ctx   context.Context
	keys  []tier.Key
	found []tier.Located
	done  chan struct{}
}

// looks are what a session has asked for: one lookup at a time, and what the last one found.
type looks struct {
	running *look
	found   map[tier.Key]tier.Located
	until   time.Time // found is too old then
}

// stat answers Stat. A name that was not asked for a moment ago is pending.
func (c *connection) stat(q *wire.Request) *wire.Reply {
	s := c.server
	state := s.State()
	p := &wire.Reply{State: &state}
	if q.List {
		p.Leases = s.Leases()
	}
	if len(q.Names) == 0 {
		return p
	}
	l := &c.session.looks
	l.take(time.Now())
	p.Items = make([]wire.Item, len(q.Names))
	var missing []tier.Key
	for i, name := range q.Names {
		k := tier.Key{Space: q.Space, Name: name}
		found, ok := l.found[k]
		switch {
		case k.Validate() != nil:
			p.Items[i].Status = wire.StatusInvalid
		case ok:
			p.Items[i] = locatedItem(found)
		default:
			p.Items[i].Status = wire.StatusPending
			missing = append(missing, k)
		}
	}
	if len(missing) > 0 && l.running == nil {
		job := &look{ctx: s.ending, keys: missing, done: make(chan struct{})}
		select {
		case s.stats.jobs <- job:
			l.running = job
		default: // the client asks again
		}
	}
	return p
}

// take takes over what a lookup has found.
func (l *looks) take(now time.Time) {
	if now.After(l.until) {
		l.found = nil
	}
	if l.running == nil {
		return
	}
	select {
	case <-l.running.done:
	default:
		return
	}
	if len(l.found) == 0 || len(l.found)+len(l.running.keys) > wire.MaxNames {
		l.found = make(map[tier.Key]tier.Located, len(l.running.keys))
		l.until = now.Add(lookedFor)
	}
	for i, k := range l.running.keys {
		l.found[k] = l.running.found[i]
	}
	l.running = nil
}

func locatedItem(found tier.Located) wire.Item {
	switch {
	case found.Err == nil:
		return wire.Item{Status: wire.StatusHit, Size: found.Object.Size, Note: found.Object.Note, Levels: found.Levels}
	case errors.Is(found.Err, context.Canceled): // the daemon ends
		return wire.Item{Status: wire.StatusPending}
	}
	return wire.Item{Status: statusOf(found.Err, wire.StatusHit)}
}
