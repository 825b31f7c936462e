package daemontest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ringcache/ringcache/encoder/wire"
)

// pin looks objects up, and verifies every byte of those that are there.
func (s *session) pin(l *lease, space string) error {
	list := s.numbers(8)
	seconds, until := s.seconds()
	q := wire.Request{Lease: l.name, Space: space, Names: namesOf(list), Seconds: seconds, Prefix: s.rng.IntN(4) == 0}
	var items []wire.Item
	err := s.until(func(ctx context.Context) (err error) {
		items, err = s.c.Pin(ctx, q)
		return err
	})
	if err != nil {
		return err
	}
	for i, v := range items {
		o := object{space, list[i]}
		s.count("pin "+string(v.Status), 1)
		switch v.Status {
		case wire.StatusHit:
			if err := s.hit(l, o, v, until); err != nil {
				return err
			}
		case wire.StatusMiss:
			if _, ok := l.pinned[o]; ok && time.Now().Before(l.until) {
				return fmt.Errorf("%v is a miss, and lease %q has it", o, l.name)
			}
		case wire.StatusPending:
		case wire.StatusFull:
			if !s.o.MayFull {
				return fmt.Errorf("%v has no room, and there is plenty", o)
			}
		default:
			return fmt.Errorf("pin of %v: %q", o, v.Status)
		}
	}
	s.at("pinned")
	return nil
}

// hit remembers a pin, and compares it with what was remembered.
func (s *session) hit(l *lease, o object, v wire.Item, until time.Time) error {
	if !time.Now().Before(l.until) { // what it had before may be gone
		clear(l.pinned)
	}
	if old, ok := l.pinned[o]; ok && old.Offset != v.Offset {
		return fmt.Errorf("%v has moved from %d to %d while lease %q had it", o, old.Offset, v.Offset, l.name)
	}
	if err := wrong(s.m, v, o.space, o.n); err != nil && time.Now().Before(until) {
		return fmt.Errorf("lease %q: %w", l.name, err)
	}
	if until.After(l.until) {
		l.until = until
	}
	l.pinned[o] = v
	return nil
}

// reserve takes room for objects. If the connection is lost meanwhile, the next daemon is asked what the lease has.
func (s *session) reserve(l *lease, space string) error {
	list := s.numbers(5)
	q := wire.Request{Lease: l.name, Space: space}
	for _, n := range list {
		q.Objects = append(q.Objects, Object(n))
	}
	q.Seconds, _ = s.seconds()
	var items []wire.Item
	err := s.until(func(ctx context.Context) (err error) {
		items, err = s.c.Reserve(ctx, q)
		return err
	})
	resolved := lost(err)
	if resolved {
		items, err = s.ask(l, space, list)
	}
	if err != nil {
		return err
	}
	for i, v := range items {
		o := object{space, list[i]}
		s.count("reserve "+string(v.Status), 1)
		old, had := l.reserved[o]
		switch v.Status {
		case wire.StatusReserved:
			if want := Object(o.n).Size; v.Size != want {
				return fmt.Errorf("%v was reserved with %d bytes, want %d", o, v.Size, want)
			}
			if had && old.Offset != v.Offset {
				return fmt.Errorf("%v has moved from %d to %d while it was reserved", o, old.Offset, v.Offset)
			}
			if !had {
				l.reserved[o] = v
			}
			continue
		case wire.StatusExists, wire.StatusPending:
			if had && v.Status == wire.StatusExists {
				return fmt.Errorf("%v exists, and lease %q has it reserved", o, l.name)
			}
			continue
		case wire.StatusFull:
			if s.o.MayFull {
				continue
			}
		case wire.StatusHit, wire.StatusEnded:
			if resolved && !had {
				continue
			}
		}
		return fmt.Errorf("reserve of %v: %q", o, v.Status)
	}
	s.at("reserved")
	return nil
}

// ask returns what a lease has of objects, after an answer was lost.
func (s *session) ask(l *lease, space string, list []int) (items []wire.Item, err error) {
	s.count("answers lost", 1)
	err = s.until(func(ctx context.Context) (err error) {
		items, err = s.c.Get(ctx, wire.Request{Lease: l.name, Space: space, Names: namesOf(list)})
		return err
	})
	return items, err
}

// write writes a part, or the rest, of what is reserved. The daemon need not be there.
func (s *session) write(l *lease) {
	for o, v := range l.reserved {
		b, err := s.m.Bytes(v)
		done := l.written[o]
		if err != nil || done == len(b) && len(b) > 0 {
			continue
		}
		all := make([]byte, len(b))
		Fill(all, o.space, o.n)
		end := len(b)
		if s.rng.IntN(3) == 0 {
			end = done + (len(b)-done)/2
		}
		copy(b[done:end], all[done:end])
		l.written[o] = end
		s.at("written")
	}
}

// commit publishes what is written: every reservation of a client that lives can be committed.
func (s *session) commit(l *lease) (space string, committed []int, err error) {
	var list []int
	for o, v := range l.reserved {
		if l.written[o] == int(v.Size) && (space == "" || o.space == space) {
			space, list = o.space, append(list, o.n)
		}
	}
	if len(list) == 0 {
		return space, nil, nil
	}
	slices.Sort(list)
	q := wire.Request{Lease: l.name, Space: space, Names: namesOf(list), Keep: s.rng.IntN(2) == 0}
	until := time.Time{}
	if q.Keep {
		q.Seconds, until = s.seconds()
	}
	s.at("committing")
	var items []wire.Item
	err = s.until(func(ctx context.Context) (err error) {
		items, err = s.c.Commit(ctx, q)
		return err
	})
	resolved := lost(err)
	if resolved {
		items, err = s.ask(l, space, list)
	}
	if err != nil {
		return space, nil, err
	}
	for i, v := range items {
		o := object{space, list[i]}
		if resolved && v.Status == wire.StatusReserved {
			continue // it was not served: commit it another time
		}
		s.count("commit "+string(v.Status), 1)
		place := l.reserved[o]
		place.Status, place.Note = wire.StatusHit, Object(o.n).Note
		switch {
		case v.Status == wire.StatusOK && !resolved, v.Status == wire.StatusHit && resolved:
			if v.Status == wire.StatusHit && v.Offset != place.Offset {
				return space, nil, fmt.Errorf("%v was reserved at %d, and is at %d", o, place.Offset, v.Offset)
			}
			if q.Keep {
				if err := s.hit(l, o, place, until); err != nil {
					return space, nil, err
				}
			}
		case v.Status == wire.StatusEnded && resolved: // committed, and not kept, or no longer
		default:
			return space, nil, fmt.Errorf("commit of %v, which lease %q had reserved: %q", o, l.name, v.Status)
		}
		delete(l.reserved, o)
		delete(l.written, o)
		committed = append(committed, o.n)
	}
	s.at("committed")
	return space, committed, nil
}

// abort gives some reservations up.
func (s *session) abort(l *lease) error {
	for o := range l.reserved {
		q := wire.Request{Lease: l.name, Space: o.space, Names: namesOf([]int{o.n})}
		var items []wire.Item
		err := s.until(func(ctx context.Context) (err error) {
			items, err = s.c.Abort(ctx, q)
			return err
		})
		if lost(err) {
			if items, err = s.ask(l, o.space, []int{o.n}); err == nil && items[0].Status == wire.StatusReserved {
				return nil // it was not served
			}
		} else if err == nil && items[0].Status != wire.StatusOK {
			return fmt.Errorf("abort of %v, which lease %q had reserved: %q", o, l.name, items[0].Status)
		}
		if err != nil {
			return err
		}
		delete(l.reserved, o)
		delete(l.written, o)
		return nil
	}
	return nil
}

// release ends a lease, or several.
func (s *session) release(l *lease) error {
	ended := []*lease{l}
	if other := s.anyLease(); other != l && s.rng.IntN(3) == 0 {
		ended = append(ended, other)
	}
	var q wire.Request
	for _, l := range ended {
		if err := s.verify(l); err != nil {
			return err
		}
		q.Leases = append(q.Leases, l.name)
	}
	for _, l := range ended {
		delete(s.leases, l.name)
	}
	return s.until(func(ctx context.Context) error { return s.c.Release(ctx, q) })
}

// unpin gives one object up.
func (s *session) unpin(l *lease) error {
	for o := range l.pinned {
		delete(l.pinned, o)
		q := wire.Request{Lease: l.name, Space: o.space, Names: namesOf([]int{o.n})}
		return s.until(func(ctx context.Context) error { return s.c.Release(ctx, q) })
	}
	return nil
}

// verify reads all that a lease has pinned from where it was, without asking anybody.
func (s *session) verify(l *lease) error {
	for o, v := range l.pinned {
		err := wrongBytes(s.m, v, o.space, o.n)
		if err != nil && time.Now().Before(l.until) {
			return fmt.Errorf("lease %q: %w", l.name, err)
		}
		s.count("verified", 1)
	}
	return nil
}
