package tier

import "testing"

// Missing returns how many keys the negative cache has.
func Missing(s *Store) int {
	n := s.fetcher.negative
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.misses)
}

// PeakInFlight returns the most bytes that were on the way up, and down, at a time.
func PeakInFlight(s *Store) (up, down int64) {
	s.fetcher.mu.Lock()
	up = s.fetcher.budget.peak
	s.fetcher.mu.Unlock()
	s.writes.mu.Lock()
	defer s.writes.mu.Unlock()
	return up, s.writes.budget.peak
}

// AllocsOfWork returns what telling of a call allocates, to a store without Options.Work.
func AllocsOfWork(s *Store) float64 {
	sh := s.fetcher.shared
	gets := make([]Get, 10)
	return testing.AllocsPerRun(100, func() {
		begin := sh.begun()
		sh.worked("fetch", sh.lower[0], begin, len(gets), func(i int) (Key, int64, error) { return gets[i].Key, 0, gets[i].Err })
	})
}
