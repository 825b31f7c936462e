package tier

// Missing returns how many keys the negative cache has.
func Missing(s *Store) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.missing.misses)
}

// PeakInFlight returns the most bytes that were on the way up, and down, at a time.
func PeakInFlight(s *Store) (up, down int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.moving.peak, s.writing.peak
}
