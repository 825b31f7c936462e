package tier

import (
	"context"
	"errors"
	"fmt"
)

// lookup finds out where the objects of a job are, and queues the jobs that move them.
func (s *Store) lookup(j *job) {
	live := s.live(j)
	live = s.dropPresent(j.ctx, live)
	found, misses := s.locate(j.ctx, live)
	if j.prefix {
		found = s.cutAtFirstMiss(live, found, misses)
	}
	jobs := s.plan(j.ctx, found)

	s.mu.Lock()
	defer s.mu.Unlock()
	for f, err := range misses {
		if isOutcome(err) {
			s.missing.add(f.key, f.version, err)
		}
		s.end(f, err)
	}
	for _, next := range jobs {
		for row := next; row != nil; row = row.next {
			row.priority = j.priority // somebody may have raised it meanwhile
		}
		s.push(next)
	}
}

// live returns the flights of a job that somebody still wants, and ends the others.
func (s *Store) live(j *job) []*flight {
	s.mu.Lock()
	defer s.mu.Unlock()
	var live []*flight
	for _, f := range j.flights {
		switch {
		case f.ended:
		case f.wanted():
			live = append(live, f)
		default:
			s.end(f, errUnwanted)
		}
	}
	return live
}

// dropPresent ends the flights whose objects are in memory by now, and returns the others.
func (s *Store) dropPresent(ctx context.Context, flights []*flight) []*flight {
	found := s.memory.Stat(ctx, keysOf(flights))
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := flights[:0:0]
	for i, f := range flights {
		switch err := found[i].Err; {
		case err == nil:
			s.arrive(f)
		case errors.Is(err, ErrPending):
			s.end(f, errElsewhere)
		default:
			rest = append(rest, f)
		}
	}
	return rest
}

// locate asks the lower levels, the fastest first, and sets level and object of what is there. Of the others it
// returns the errors.
func (s *Store) locate(ctx context.Context, flights []*flight) (found map[*flight]bool, misses map[*flight]error) {
	found, misses = map[*flight]bool{}, map[*flight]error{}
	for _, f := range flights {
		misses[f] = nowhere(f.key)
	}
	rest := flights
	for _, l := range s.lower {
		if len(rest) == 0 {
			break
		}
		answers, ctxErr := s.statLevel(ctx, l, keysOf(rest))
		next := rest[:0:0]
		for i, f := range rest {
			err := answers[i].Err
			if err == nil && answers[i].Object.Key != f.key {
				err = fmt.Errorf("tier: level %s answered for object %v with %v: %w", l.name, f.key, answers[i].Object.Key, ErrCorrupt)
			}
			switch {
			case err == nil:
				f.object, f.level = answers[i].Object, l.index
				found[f] = true
				delete(misses, f)
				continue
			case ctxErr != nil:
				misses[f] = errUnwanted
			case errors.Is(err, ErrPending):
				misses[f] = errElsewhere
			case !errors.Is(err, ErrNotFound) || errors.Is(err, ErrCorrupt):
				misses[f] = lost(misses[f], err)
			}
			next = append(next, f)
		}
		rest = next
	}
	return found, misses
}

// nowhere is the answer if no level has an object.
func nowhere(k Key) error { return fmt.Errorf("tier: object %v: %w", k, ErrNotFound) }

// lost adds to a miss that a level could not be asked.
func lost(miss, err error) error {
	switch {
	case !isOutcome(miss), errors.Is(miss, ErrUnavailable):
		return miss
	case errors.Is(err, ErrCorrupt):
		return errors.Join(miss, err)
	}
	return fmt.Errorf("%w, and a level could not be asked: %w", miss, errors.Join(ErrUnavailable, err))
}

// cutAtFirstMiss ends the flights behind the first one that is nowhere.
func (s *Store) cutAtFirstMiss(order []*flight, found map[*flight]bool, misses map[*flight]error) map[*flight]bool {
	cut := false
	for _, f := range order {
		cut = cut || !found[f]
		if cut && found[f] {
			delete(found, f)
			misses[f] = errElsewhere
		}
	}
	return found
}

func keysOf(flights []*flight) []Key {
	keys := make([]Key, len(flights))
	for i, f := range flights {
		keys[i] = f.key
	}
	return keys
}
