package tier

import (
	"context"
	"errors"
)

// Delete removes objects from all levels, as [Level.Delete]. A fetch or a write that runs could bring an
// object back: Delete waits for its end. The error is nil if a level had it and none has it now, ErrInUse
// of what a lease has, of which nothing is deleted, and ErrUnavailable if a level could not be asked: the
// object may come back with it.
func (s *Store) Delete(ctx context.Context, keys []Key) []error {
	if !s.life.enter() {
		return repeat(len(keys), errClosedStore())
	}
	defer s.life.leave()
	errs := make([]error, len(keys))
	var places []int // of keys that are to be deleted
	seen := map[Key]bool{}
	for i, k := range keys {
		switch errs[i] = k.Validate(); {
		case errs[i] != nil:
		case seen[k]:
			errs[i] = errNowhere(k)
		default:
			seen[k] = true
			places = append(places, i)
		}
	}
	blocked := pick(keys, places)
	s.fetcher.block(blocked)
	s.writes.block(blocked)
	defer s.fetcher.unblock(blocked)
	defer s.writes.unblock(blocked)
	idle := places[:0]
	for _, at := range places {
		if errs[at] = s.fetcher.waitIdle(ctx, keys[at]); errs[at] == nil {
			errs[at] = s.writes.waitIdle(ctx, keys[at])
		}
		if errs[at] == nil {
			idle = append(idle, at)
		}
	}
	s.deleteIdle(ctx, keys, idle, errs)
	return errs
}

// deleteIdle deletes keys that no part of the store works on. Memory comes first: what a lease has stays in
// all levels.
func (s *Store) deleteIdle(ctx context.Context, keys []Key, places []int, errs []error) {
	some := pick(keys, places)
	s.fetcher.unpin(some)
	pending := s.writes.cancel(some)
	there := map[int]bool{}
	var rest []int
	for i, err := range s.memory.Delete(ctx, some) {
		at := places[i]
		switch {
		case err == nil:
			there[at] = true
		case errors.Is(err, ErrNotFound):
		default:
			errs[at] = err
			if !errors.Is(err, ErrUnavailable) {
				s.writes.restore(keys[at], pending[i])
				continue
			}
		}
		rest = append(rest, at)
	}
	for _, l := range s.lower {
		if len(rest) == 0 {
			break
		}
		for i, err := range l.delete(ctx, pick(keys, rest)) {
			at := rest[i]
			switch {
			case err == nil:
				there[at] = true
			case errors.Is(err, ErrNotFound) && !errors.Is(err, ErrUnavailable):
			default:
				errs[at] = errors.Join(errs[at], err)
			}
		}
	}
	for _, at := range rest {
		switch {
		case errs[at] == nil && !there[at]:
			errs[at] = errNowhere(keys[at])
		case errs[at] == nil:
			s.report.event(0, kindDeleted, keys[at], 0, nil)
		}
	}
}

// pick returns the keys at some places.
func pick(keys []Key, places []int) []Key {
	out := make([]Key, len(places))
	for i, at := range places {
		out[i] = keys[at]
	}
	return out
}
