package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/shmfile"
)

// Hold keeps the mapping from being closed until Release. It fails with
// [ErrClosed].
func (s *Segment) Hold() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("%w: %s", ErrClosed, s.opt.Name)
	}
	s.holds++
	return nil
}

// Release undoes one Hold.
func (s *Segment) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holds == 0 {
		panic("shmring: Release without Hold")
	}
	s.holds--
	s.signalIdle()
	if s.holds == 0 && s.closed { // it was abandoned meanwhile
		_ = s.unmap()
	}
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

func (s *Segment) idle() error {
	if s.holds > 0 {
		return fmt.Errorf("%w: %s: %d views or reservations are open; release them first", ErrBusy, s.opt.Name, s.holds)
	}
	return nil
}

// Close unmaps the segment and leaves the object itself alone. It fails with
// [ErrBusy], and does nothing, while it is held. Closing twice is fine.
func (s *Segment) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.close()
}

// Detach is Close, and says in the sidecar that the writer ended by plan, so that
// the next one finds what it left.
func (s *Segment) Detach() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	if err := s.idle(); err != nil {
		return err
	}
	var err error
	if s.sidecar != nil {
		err = fault.Guard(func() error {
			state := s.sidecar.State()
			state.Clean = true
			s.sidecar.SetState(state)
			return nil
		})
	}
	return errors.Join(err, s.close())
}

// Destroy is Unlink and Close in one step: while the segment is held it fails
// with [ErrBusy] and does neither.
func (s *Segment) Destroy() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	if err := s.idle(); err != nil {
		return err
	}
	return errors.Join(s.unlink(), s.close())
}

func (s *Segment) close() error {
	if s.closed {
		return nil
	}
	if err := s.idle(); err != nil {
		return err
	}
	s.closed = true
	return s.unmap()
}

// unmap ends the memory of a closed segment.
func (s *Segment) unmap() error {
	if s.file == nil {
		return nil
	}
	m := s.mem
	s.mem = nil
	err := errors.Join(shmfile.Unmap(m), s.file.Close())
	if s.sidecar != nil {
		err = errors.Join(err, s.sidecar.Close()) // last, since that ends the lock
	}
	return err
}

// Unlink removes the name, so that no one can attach any more; mappings live
// on. A name that is gone already, or that names another object by now, is left
// alone without an error. It must be called before Close.
func (s *Segment) Unlink() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("%w: %s: unlink before closing", ErrClosed, s.opt.Name)
	}
	return s.unlink()
}

func (s *Segment) unlink() error {
	if s.file == nil {
		return nil
	}
	if shmfile.Same(s.file, s.path) {
		if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("shmring: unlinking segment %s: %w", s.opt.Name, err)
		}
	}
	failpoint.Hit("segment.unlinked")
	if s.sidecar != nil {
		return s.sidecar.Remove()
	}
	return nil
}

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
