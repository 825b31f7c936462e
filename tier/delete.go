package tier

import (
	"context"
	"errors"
)

// Delete removes objects from all levels, as [Level.Delete]. An object that is being brought or written comes back from
// nowhere: Delete waits for that. The error is nil if a level had it and none has it now, ErrInUse of what a lease
// has, of which nothing is deleted, and ErrUnavailable if a level could not be asked: the object may
// come back with it.
func (s *Store) Delete(ctx context.Context, keys []Key) []error {
	if !s.gate.enter() {
		return refuse(len(keys), errClosedStore())
	}
	defer s.gate.leave()
	errs := make([]error, len(keys))
	var live []int // places of keys that are to be deleted
	seen := map[Key]bool{}
	for i, k := range keys {
		switch errs[i] = k.Validate(); {
		case errs[i] != nil:
		case seen[k]:
			errs[i] = nowhere(k)
		default:
			seen[k] = true
			live = append(live, i)
		}
	}
	s.ban(keys, live)
	defer s.unban(keys, live)
	live = s.calm(ctx, keys, live, errs)

	// Memory first: what a lease has stays in all levels.
	there := map[int]bool{}
	owed := s.release(keys, live)
	rest := live[:0:0]
	for i, err := range s.memory.Delete(ctx, pick(keys, live)) {
		at := live[i]
		switch {
		case err == nil:
			there[at] = true
		case errors.Is(err, ErrNotFound):
		default:
			errs[at] = err
			if !errors.Is(err, ErrUnavailable) {
				s.regret(keys[at], owed[at])
				continue
			}
		}
		rest = append(rest, at)
	}
	for _, l := range s.lower {
		if len(rest) == 0 {
			break
		}
		for i, err := range s.deleteLevel(ctx, l, pick(keys, rest)) {
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
			errs[at] = nowhere(keys[at])
		case errs[at] == nil:
			s.counters.add(0, kindDeleted, nil, 1, 0)
			s.events.send(Event{Level: s.memory.Name(), Kind: kindDeleted.String(), Key: keys[at]})
		}
	}
	return errs
}

func pick(keys []Key, places []int) []Key {
	out := make([]Key, len(places))
	for i, at := range places {
		out[i] = keys[at]
	}
	return out
}

// ban keeps the store itself from bringing or writing keys, and ends what has not begun.
func (s *Store) ban(keys []Key, live []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range live {
		k := keys[i]
		s.deleting[k]++
		f := s.flights[k]
		if f == nil {
			continue
		}
		f.deleted = true
		if f.job == nil || !f.job.running {
			s.end(f, errUnwanted)
		} else {
			s.cancelUnwanted(f.job)
		}
	}
}

func (s *Store) unban(keys []Key, live []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range live {
		if s.deleting[keys[i]]--; s.deleting[keys[i]] == 0 {
			delete(s.deleting, keys[i])
		}
	}
	s.wake.Broadcast() // something may be owed again
}

// calm waits until no worker has the keys. It returns the places of those that nobody has.
func (s *Store) calm(ctx context.Context, keys []Key, live []int, errs []error) []int {
	calm := live[:0:0]
	for _, i := range live {
		if errs[i] = s.quiet(ctx, keys[i]); errs[i] == nil {
			calm = append(calm, i)
		}
	}
	return calm
}

func (s *Store) quiet(ctx context.Context, k Key) error {
	for {
		s.mu.Lock()
		var wait chan struct{}
		if f := s.flights[k]; f != nil {
			wait = f.done
		} else if d := s.owed.debts[k]; d != nil && d.writing != 0 {
			if d.quiet == nil {
				d.quiet = make(chan struct{})
			}
			wait = d.quiet
		}
		s.mu.Unlock()
		if wait == nil {
			return nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// release gives up what the store's own leases have, and returns to which levels it was owed.
func (s *Store) release(keys []Key, live []int) map[int]uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	owed := map[int]uint32{}
	for _, i := range live {
		s.promoted.remove(keys[i])
		if d := s.owed.debts[keys[i]]; d != nil {
			owed[i] = d.left
			s.dropDebt(d, d.left)
		}
	}
	return owed
}

// regret owes an object again that could not be deleted, as the first one: its children may be in the lists.
func (s *Store) regret(k Key, levels uint32) {
	found := s.memory.Stat(context.Background(), []Key{k})[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	if found.Err == nil {
		if err := s.owe(found.Object, levels); err != nil {
			s.notOwed(found.Object, levels, err)
			return
		}
		if d := s.owed.debts[k]; d != nil {
			s.hasten(d, levels)
		}
	}
}
