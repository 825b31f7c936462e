package daemontest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ringcache/ringcache/daemon/wire"
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
	s.note("%s pin %v for %d s: %v", l.name, list, seconds, statuses(items))
	for i, v := range items {
		o := object{space, list[i]}
		s.count("pin "+string(v.Status), 1)
		switch s.answer(v) {
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

// answer is the status of an item, that of a miss where one is to be expected.
func (s *session) answer(v wire.Item) wire.Status {
	if v.Status == wire.StatusUnavailable && s.o.MayAway {
		return wire.StatusMiss
	}
	return v.Status
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
	if s.o.MayLapse {
		until = time.Now()
	}
	if until.After(l.until) {
		l.until = until
	}
	l.pinned[o] = v
	return nil
}

// reserve takes room for objects.
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
	if err != nil {
		return err
	}
	s.note("%s reserve %v: %v", l.name, list, statuses(items))
	for i, v := range items {
		o := object{space, list[i]}
		s.count("reserve "+string(v.Status), 1)
		old, had := l.reserved[o]
		switch {
		case v.Status == wire.StatusReserved:
			if want := Object(o.n).Size; v.Size != want {
				return fmt.Errorf("%v was reserved with %d bytes, want %d", o, v.Size, want)
			}
			if had && old.Offset != v.Offset {
				return fmt.Errorf("%v has moved from %d to %d while it was reserved", o, old.Offset, v.Offset)
			}
			if !had {
				l.reserved[o] = v
			}
		case v.Status == wire.StatusExists && !had, v.Status == wire.StatusPending && !had, v.Status == wire.StatusFull && s.o.MayFull && !had:
		default:
			return fmt.Errorf("reserve of %v, which the lease had reserved already (%v): %q", o, had, v.Status)
		}
	}
	s.at("reserved")
	return nil
}

// stands reports whether the daemon has all reservations where they were: those of a client that lives stay.
func (s *session) stands(l *lease, space string, list []int) error {
	var items []wire.Item
	err := s.until(func(ctx context.Context) (err error) {
		items, err = s.c.Get(ctx, wire.Request{Lease: l.name, Space: space, Names: namesOf(list)})
		return err
	})
	if err != nil {
		return err
	}
	for i, v := range items {
		o := object{space, list[i]}
		if old := l.reserved[o]; v.Status != wire.StatusReserved || v.Offset != old.Offset || v.Size != old.Size {
			return fmt.Errorf("%v, which lease %q had reserved at %d, is %q at %d", o, l.name, old.Offset, v.Status, v.Offset)
		}
	}
	return nil
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
	if err := s.stands(l, space, list); err != nil {
		return space, nil, err
	}
	s.at("committing")
	var items []wire.Item
	err = s.until(func(ctx context.Context) (err error) {
		items, err = s.c.Commit(ctx, q)
		return err
	})
	if err != nil {
		return space, nil, err
	}
	s.note("%s commit %v keep %v: %v", l.name, list, q.Keep, statuses(items))
	for i, v := range items {
		o := object{space, list[i]}
		s.count("commit "+string(v.Status), 1)
		place := l.reserved[o]
		delete(l.reserved, o)
		delete(l.written, o)
		switch v.Status {
		case wire.StatusOK:
		case wire.StatusEnded: // it was served, the answer was lost, and the object has gone before the second one
			if !s.o.MayFull && !q.Keep && space == s.o.Space() {
				return space, nil, fmt.Errorf("commit of %v, which lease %q had reserved: %q", o, l.name, v.Status)
			}
			continue
		default:
			return space, nil, fmt.Errorf("commit of %v, which lease %q had reserved: %q", o, l.name, v.Status)
		}
		committed = append(committed, o.n)
		if q.Keep {
			place.Status, place.Note = wire.StatusHit, Object(o.n).Note
			if err := s.hit(l, o, place, until); err != nil {
				return space, nil, err
			}
		}
	}
	s.at("committed")
	return space, committed, nil
}

// abort gives a reservation up.
func (s *session) abort(l *lease) error {
	for o := range l.reserved {
		if err := s.stands(l, o.space, []int{o.n}); err != nil {
			return err
		}
		q := wire.Request{Lease: l.name, Space: o.space, Names: namesOf([]int{o.n})}
		var items []wire.Item
		err := s.until(func(ctx context.Context) (err error) {
			items, err = s.c.Abort(ctx, q)
			return err
		})
		if err != nil {
			return err
		}
		s.note("%s abort %v: %v", l.name, o, statuses(items))
		s.count("abort "+string(items[0].Status), 1)
		if v := items[0].Status; v != wire.StatusOK && v != wire.StatusEnded { // the first answer was lost
			return fmt.Errorf("abort of %v, which lease %q had reserved: %q", o, l.name, v)
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
		s.note("%s release", l.name)
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

func statuses(items []wire.Item) []wire.Status {
	list := make([]wire.Status, len(items))
	for i, v := range items {
		list[i] = v.Status
	}
	return list
}
