package tier

import (
	"context"
	"errors"
	"fmt"
)

// search is what the lookups of a job have found so far. One worker at a time has it.
type search struct {
	found  map[*flight]bool // level and object are set
	misses map[*flight]error
}

// lookup asks one level for the objects of a job that the faster ones did not have. After the last level
// it queues the jobs that move what was found.
func (s *Store) lookup(j *job) {
	live := s.live(j)
	if j.search == nil {
		live = s.dropPresent(j.ctx, live)
		j.search = &search{map[*flight]bool{}, map[*flight]error{}}
		for _, f := range live {
			j.search.misses[f] = nowhere(f.key)
		}
	}
	if rest := j.search.rest(live); len(rest) > 0 && j.level < len(s.lower) {
		s.ask(j, rest)
	}
	if len(j.search.rest(live)) > 0 && j.level+1 < len(s.lower) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.push(&job{flights: live, run: s.lookup, level: j.level + 1, search: j.search, priority: j.priority, prefix: j.prefix, index: -1})
		return
	}
	s.depart(j, live)
}

// rest returns the flights that were not found yet.
func (s *search) rest(flights []*flight) []*flight {
	rest := flights[:0:0]
	for _, f := range flights {
		if !s.found[f] {
			rest = append(rest, f)
		}
	}
	return rest
}

// depart ends the flights of what is nowhere, and queues those of the rest.
func (s *Store) depart(j *job, live []*flight) {
	if j.prefix {
		j.search.cutAtFirstMiss(live)
	}
	alive := map[*flight]bool{}
	for _, f := range live {
		if j.search.found[f] {
			alive[f] = true
		}
	}
	jobs := s.plan(j.ctx, alive)

	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range live {
		if err := j.search.misses[f]; err != nil {
			if isOutcome(err) {
				s.missing.add(f.key, f.version, err)
			}
			s.end(f, err)
		}
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

// ask asks the level of a job, and notes what it has, and why others may be there all the same.
func (s *Store) ask(j *job, flights []*flight) {
	l := s.lower[j.level]
	answers, ctxErr := s.statLevel(j.ctx, l, keysOf(flights))
	for i, f := range flights {
		err := answers[i].Err
		if err == nil && answers[i].Object.Key != f.key {
			err = fmt.Errorf("tier: level %s answered for object %v with %v: %w", l.name, f.key, answers[i].Object.Key, ErrCorrupt)
		}
		miss := j.search.misses
		switch {
		case err == nil:
			f.object, f.level = answers[i].Object, l.index
			j.search.found[f] = true
			delete(miss, f)
		case ctxErr != nil:
			miss[f] = errUnwanted
		case errors.Is(err, ErrPending):
			miss[f] = errElsewhere
		case !errors.Is(err, ErrNotFound) || errors.Is(err, ErrCorrupt):
			miss[f] = lost(miss[f], err)
		}
	}
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

// cutAtFirstMiss gives up what was found behind the first flight that is nowhere.
func (s *search) cutAtFirstMiss(order []*flight) {
	cut := false
	for _, f := range order {
		cut = cut || !s.found[f]
		if cut && s.found[f] {
			delete(s.found, f)
			s.misses[f] = errElsewhere
		}
	}
}

func keysOf(flights []*flight) []Key {
	keys := make([]Key, len(flights))
	for i, f := range flights {
		keys[i] = f.key
	}
	return keys
}
