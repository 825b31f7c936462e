package shmring

import "errors"

// Abandon removes the names of the segment and its sidecar at once, as Destroy
// does, also while the segment is held. No new Hold is given. The memory goes with
// the last Release, or now if there is no hold. Abandoning twice is fine, and so is
// Close after it.
func (s *Segment) Abandon() error { return s.abandon(true) }

// Leave is Abandon for a segment that belongs to someone else: it removes nothing.
func (s *Segment) Leave() error { return s.abandon(false) }

func (s *Segment) abandon(remove bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	var err error
	if remove {
		err = s.unlink()
	}
	if s.holds > 0 {
		s.closed = true
		return err
	}
	return errors.Join(err, s.close())
}

// Holds returns the number of holds.
func (s *Segment) Holds() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holds
}

// Idle returns a channel that is closed as soon as nobody holds the segment.
func (s *Segment) Idle() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idleNow == nil {
		s.idleNow = make(chan struct{})
	}
	c := s.idleNow
	s.signalIdle()
	return c
}

func (s *Segment) signalIdle() {
	if s.holds == 0 && s.idleNow != nil {
		close(s.idleNow)
		s.idleNow = nil
	}
}
