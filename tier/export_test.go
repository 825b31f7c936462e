package tier

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
