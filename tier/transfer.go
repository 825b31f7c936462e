package tier

import (
	"context"
	"errors"
	"fmt"
)

// carried is a flight during its transfer.
type carried struct {
	*flight
	placed Placed
	from   *lower // that the bytes came from; nil until they are there
	err    error
}

// transfer moves the objects of a job into memory: it reserves their places, reads straight into these, and
// commits what was read, parents first.
func (s *Store) transfer(j *job) {
	live := s.live(j)
	if len(live) == 0 {
		return
	}
	cargo := make([]*carried, len(live))
	objects := make([]Object, len(live))
	for i, f := range live {
		cargo[i] = &carried{flight: f}
		objects[i] = f.object
	}
	for i, p := range s.promoted.lease.Reserve(objects) {
		cargo[i].placed, cargo[i].err = p, p.Err
	}
	for _, l := range s.lower {
		s.carry(j.ctx, l, cargo)
	}
	s.land(j.ctx, cargo)
}

// carry reads from a level what it should have, or what a faster one did not have after all.
func (s *Store) carry(ctx context.Context, l *lower, cargo []*carried) {
	var some []*carried
	var gets []Get
	for _, c := range cargo {
		if c.placed.Err == nil && c.from == nil && c.level <= l.index {
			some = append(some, c)
			gets = append(gets, Get{Key: c.key, Into: c.into})
		}
	}
	if len(some) == 0 {
		return
	}
	s.getLevel(ctx, l, gets, func(int) bool { return false })
	for i, c := range some {
		switch err := gets[i].Err; {
		case err == nil && len(gets[i].Bytes) == len(c.placed.Bytes):
			c.from, c.err = l, nil
		case err == nil:
			c.err = fmt.Errorf("tier: level %s returned %d bytes of object %v, which has %d: %w", l.name, len(gets[i].Bytes), c.key, len(c.placed.Bytes), ErrCorrupt)
		case c.err == nil || !errors.Is(err, ErrNotFound) || errors.Is(err, ErrCorrupt):
			c.err = err
		}
	}
}

// into gives a level the place of the object. The level's description must be the one that the place was
// reserved for. The level reads in its own goroutines, where no guard helps: if something cuts the segment
// short meanwhile, the process ends. Without that, every object would be copied once more.
func (c *carried) into(o Object) ([]byte, error) {
	if o.Key != c.object.Key || o.Size != c.object.Size {
		return nil, fmt.Errorf("tier: object %v of %d bytes was looked up, and %v of %d bytes found: %w", c.object.Key, c.object.Size, o.Key, o.Size, ErrCorrupt)
	}
	return c.placed.Bytes, nil
}

// land commits what was read, gives up the rest, and ends the flights.
func (s *Store) land(ctx context.Context, cargo []*carried) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var commit, abort []Key
	coming := map[Key]bool{}
	for _, c := range cargo {
		if c.placed.Err != nil {
			continue
		}
		if c.from != nil && (c.deleted || s.deleting[c.key] > 0) {
			c.from, c.err = nil, errUnwanted
		}
		if parent, ok := c.object.ParentKey(); ok && c.from != nil && !coming[parent] && s.memory.Stat(ctx, []Key{parent})[0].Err != nil {
			c.from, c.err = nil, orphan(c.flight)
		}
		if c.from == nil {
			abort = append(abort, c.key)
			continue
		}
		commit = append(commit, c.key)
		coming[c.key] = true
	}
	lease := s.promoted.lease
	lease.Abort(abort) // first: a child whose parent is given up is given up, too
	committed := map[Key]error{}
	for i, err := range lease.Commit(commit) {
		committed[commit[i]] = err
	}
	for _, c := range cargo {
		if c.from != nil {
			c.err = committed[c.key]
		}
		switch {
		case c.from != nil && c.err == nil:
			s.counters.add(1+c.from.index, kindPromoted, nil, 1, c.object.Size)
			s.events.send(Event{Level: c.from.name, Kind: kindPromoted.String(), Key: c.key, Bytes: c.object.Size})
			s.copyUp(c)
			s.arrive(c.flight)
		case errors.Is(c.placed.Err, ErrExists):
			s.arrive(c.flight)
		case errors.Is(c.placed.Err, ErrPending):
			s.end(c.flight, errElsewhere)
		default:
			s.crash(ctx, c)
		}
	}
}

// crash ends a flight that did not arrive.
func (s *Store) crash(ctx context.Context, c *carried) {
	err := c.err
	switch {
	case err == nil: // no level was left to read it from
		err = nowhere(c.key)
	case ctx.Err() != nil || errors.Is(err, context.Canceled):
		err = errUnwanted
	case !errors.Is(err, ErrFull) && !errors.Is(err, ErrTooLarge) && !errors.Is(err, ErrNotFound):
		err = lost(nowhere(c.key), err)
	}
	l := s.lower[c.level]
	s.counters.add(1+l.index, kindNotPromoted, err, 1, c.object.Size)
	s.events.send(Event{Level: l.name, Kind: kindNotPromoted.String(), Key: c.key, Bytes: c.object.Size, Cause: causeOf(err).String()})
	if isOutcome(err) {
		s.missing.add(c.key, c.version, err)
	}
	s.end(c.flight, err)
}

// arrive ends a flight whose object is in memory, and keeps it there for who wanted it.
func (s *Store) arrive(f *flight) {
	s.promoted.keep(f)
	s.end(f, nil)
}
