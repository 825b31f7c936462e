package daemontest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ringcache/ringcache/daemon/wire"
)

// get compares what the daemon says that a lease has in a space with what is remembered.
func (s *session) get(l *lease) error {
	spaces := map[string]bool{}
	for o := range l.pinned {
		spaces[o.space] = true
	}
	for o := range l.reserved {
		spaces[o.space] = true
	}
	for space := range spaces {
		var items []wire.Item
		err := s.until(func(ctx context.Context) (err error) {
			items, err = s.c.Get(ctx, wire.Request{Lease: l.name, Space: space})
			return err
		})
		if err != nil {
			return err
		}
		if err := l.compare(space, items); err != nil {
			return fmt.Errorf("lease %q: %w", l.name, err)
		}
		s.count("get", 1)
	}
	return nil
}

// compare judges a list of all that a lease has in a space.
func (l *lease) compare(space string, items []wire.Item) error {
	pinned, reserved := 0, 0
	for _, v := range items {
		var o object
		o.space = space
		if _, err := fmt.Sscanf(v.Name, "object-%d", &o.n); err != nil {
			return fmt.Errorf("get returned the name %q: %w", v.Name, err)
		}
		var old wire.Item
		var ok bool
		switch v.Status {
		case wire.StatusHit:
			if old, ok = l.pinned[o]; ok {
				pinned++
			} else {
				continue // what was asked for and whose answer was lost
			}
		case wire.StatusReserved:
			if old, ok = l.reserved[o]; !ok {
				return fmt.Errorf("%v is reserved, and nobody asked for it", o)
			}
			reserved++
		default:
			return fmt.Errorf("%v is %q", o, v.Status)
		}
		if old.Offset != v.Offset || old.Size != v.Size {
			return fmt.Errorf("%v is at %d with %d bytes, and was at %d with %d", o, v.Offset, v.Size, old.Offset, old.Size)
		}
	}
	for o := range l.reserved {
		if o.space == space {
			reserved--
		}
	}
	for o := range l.pinned {
		if o.space == space {
			pinned--
		}
	}
	if reserved != 0 || pinned != 0 && time.Now().Before(l.until) {
		return fmt.Errorf("get returned %d reservations and %d pins less than there are, in %v", -reserved, -pinned, items)
	}
	return nil
}

// stat looks at objects and at the daemon.
func (s *session) stat(space string) error {
	list := s.numbers(8)
	var p *wire.Reply
	for range 20 { // what nobody has asked for is pending at first
		err := s.until(func(ctx context.Context) (err error) {
			p, err = s.c.Stat(ctx, wire.Request{Space: space, Names: namesOf(list), List: s.rng.IntN(4) == 0})
			return err
		})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(p.Items, func(v wire.Item) bool { return v.Status == wire.StatusPending }) {
			break
		}
	}
	for i, v := range p.Items {
		s.count("stat "+string(v.Status), 1)
		switch s.answer(v) {
		case wire.StatusMiss, wire.StatusPending:
		case wire.StatusHit:
			if want := Object(list[i]).Size; v.Size != want || len(v.Levels) == 0 {
				return fmt.Errorf("object %d of %s has %d bytes in %q, want %d", list[i], space, v.Size, v.Levels, want)
			}
		default:
			return fmt.Errorf("stat of object %d of %s: %q", list[i], space, v.Status)
		}
	}
	if p.State == nil || len(p.State.Levels) == 0 || p.State.Sessions == 0 {
		return fmt.Errorf("stat says %+v", p.State)
	}
	return nil
}

// impatient asks, and does not wait for the answer: the next call has to find its own.
func (s *session) impatient(space string) error {
	ctx, stop := context.WithTimeout(s.ctx, time.Duration(s.rng.IntN(300))*time.Microsecond)
	defer stop()
	_, err := s.c.Stat(ctx, wire.Request{Space: space, Names: namesOf(s.numbers(8)), List: true})
	if err != nil && !passes(err) {
		return err
	}
	return nil
}
