package tier

import (
	"context"
	"errors"
	"math"
)

// Prefetch brings objects into memory in the background, those of higher priority first, and all of them behind what
// somebody waits for. It returns at once. The errors, in the order of the keys, are nil of what is in memory,
// ErrPending of what will be brought, or the answer of Pin. When ctx ends, what nobody else wants is
// not brought any more.
//
// An object that was brought is held for nobody: it may go again for room.
func (s *Store) Prefetch(ctx context.Context, keys []Key, priority int) []error {
	if !s.gate.enter() {
		return refuse(len(keys), errClosedStore())
	}
	defer s.gate.leave()
	errs := make([]error, len(keys))
	found := s.memory.Stat(ctx, keys)
	priority = min(priority, math.MaxInt-1)
	var fresh, wanted []*flight
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, k := range keys {
		if errs[i] = found[i].Err; !errors.Is(errs[i], ErrNotFound) {
			continue
		}
		f := s.flights[k]
		switch miss := s.missing.get(k); {
		case f != nil && !f.deleted:
			s.raise(f.job, priority)
		case miss != nil:
			errs[i] = miss
			continue
		default:
			if err := s.mayFly(k); err != nil {
				errs[i] = err
				continue
			}
			f = s.newFlight(k)
			f.place = i
			fresh = append(fresh, f)
		}
		f.waits++
		wanted = append(wanted, f)
		errs[i] = pending(k)
	}
	s.launch(fresh, priority, false)
	if ctx.Done() != nil && len(wanted) > 0 {
		s.work.Go(func() { s.follow(ctx, wanted) })
	}
	return errs
}

// follow waits until flights have ended, or nobody wants them for ctx any more.
func (s *Store) follow(ctx context.Context, flights []*flight) {
	for _, f := range flights {
		select {
		case <-f.done:
			continue
		case <-ctx.Done():
		case <-s.ctx.Done():
			return
		}
		break
	}
	if ctx.Err() == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range flights {
		if !f.ended {
			s.unwait(f)
		}
	}
}
