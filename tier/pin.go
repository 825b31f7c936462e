package tier

import (
	"errors"
	"fmt"
	"time"
)

// answer replaces the misses of memory by what they mean for the store: pending, if it is on the way or may be. It
// notes what the lease took. With prefix, it stops at the first miss, and returns the number of answers up to it.
func (s *Store) answer(lease string, keys []Key, placed []Placed, prefix bool) int {
	hits := true
	for i := range placed {
		hits = hits && placed[i].Err == nil
	}
	if hits && !prefix {
		s.taken(lease, keys, placed)
		return len(placed)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var fresh []*flight
	n := len(placed)
	for i := range placed {
		k := keys[i]
		switch err := placed[i].Err; {
		case err == nil:
			if !prefix {
				s.promoted.take(lease, k)
			}
			continue
		case errors.Is(err, ErrPending):
			if f := s.flights[k]; f != nil {
				s.want(f, lease, now)
			}
			continue
		case errors.Is(err, ErrNotFound):
			var f *flight
			if f, placed[i].Err = s.answerOne(lease, k, now); f != nil {
				f.place = i
				fresh = append(fresh, f)
			}
		}
		if prefix && !errors.Is(placed[i].Err, ErrPending) {
			n = i + 1
			break
		}
	}
	s.launch(fresh, urgent, prefix)
	return n
}

// taken notes that objects that were brought have reached who wanted them.
func (s *Store) taken(lease string, keys []Key, placed []Placed) {
	if s.promoted.size.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range placed {
		if placed[i].Err == nil {
			s.promoted.take(lease, keys[i])
		}
	}
}

// answerOne answers for one key that is not in memory. It returns a flight if a new one is to be launched.
func (s *Store) answerOne(lease string, k Key, now time.Time) (*flight, error) {
	if f := s.asked[lease][k]; f != nil && f.ended {
		s.forget(lease, k) // the lease hears of it now
		return nil, f.err
	}
	if f := s.flights[k]; f != nil && !f.deleted {
		s.want(f, lease, now)
		return nil, pending(k)
	}
	if err := s.missing.get(k); err != nil {
		return nil, err
	}
	if err := s.mayFly(k); err != nil {
		return nil, err
	}
	f := s.newFlight(k)
	s.want(f, lease, now)
	return f, pending(k)
}

// mayFly reports why a key can't be brought now.
func (s *Store) mayFly(k Key) error {
	switch {
	case k.Validate() != nil:
		return k.Validate()
	case s.stopping:
		return errClosedStore()
	case s.deleting[k] > 0 || s.flights[k] != nil: // a deletion waits for the flight
		return fmt.Errorf("tier: object %v is being deleted: %w", k, ErrNotFound)
	case len(s.flights) >= s.options.MaxPending:
		return fmt.Errorf("tier: object %v: %d objects are pending, the most is %d: %w", k, len(s.flights), s.options.MaxPending, ErrFull)
	}
	away := false
	for _, l := range s.lower {
		if !l.away.Load() {
			return nil
		}
		away = true
	}
	if away {
		return fmt.Errorf("tier: object %v: %w in memory, and all lower levels are away: %w", k, ErrNotFound, ErrUnavailable)
	}
	return nowhere(k)
}

func pending(k Key) error { return fmt.Errorf("tier: object %v: %w", k, ErrPending) }
