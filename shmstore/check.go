package shmstore

import (
	"errors"
	"fmt"
)

// report collects what does not hold.
type report func(format string, args ...any)

// CheckStructure verifies everything that must hold between calls and returns
// every violation it finds, joined. A closed store has none.
func (s *Store) CheckStructure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Closed {
		return nil
	}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("store: "+format, args...)) }
	s.space.check(bad)
	s.lifetime.check(bad)
	s.durability.check(&s.space, bad)
	return errors.Join(errs...)
}
