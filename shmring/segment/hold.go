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

// Hold keeps the mapping from being unmapped until Release. It fails with fs.ErrClosed.
func (s *Segment) Hold() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("%w: %s", errClosed, s.opt.Name)
	}
	s.holds++
	return nil
}

// Release ends one Hold.
func (s *Segment) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holds == 0 {
		panic("segment: Release without Hold")
	}
	s.holds--
	s.signalIdle()
	if s.holds == 0 && s.closed { // by Leave, meanwhile
		_ = s.unmap()
	}
}

// Holds returns the number of holds.
func (s *Segment) Holds() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holds
}

// Idle returns a channel that is closed as soon as there are no holds.
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

// Close unmaps the segment; the shared memory object stays. While the segment is held, Close
// fails with [ErrBusy] and does nothing. Closing twice is fine.
func (s *Segment) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.close()
}

// Detach is Close, and first marks the state in the sidecar as clean: the writer ended by
// plan, so the next writer need not look for damage.
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

// Destroy is Unlink and Close in one step. While the segment is held, Destroy fails with
// [ErrBusy] and does neither.
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
	if s.closed && s.holds > 0 {
		return nil // left: the last Release unmaps
	}
	if err := s.idle(); err != nil {
		return err
	}
	s.closed = true
	return s.unmap()
}

// unmap unmaps a closed segment and closes its sidecar. It does nothing once it has succeeded.
func (s *Segment) unmap() error {
	if s.mem == nil || s.file == nil {
		return nil
	}
	if s.pin != nil {
		// Before the memory is unmapped: the driver would go on using pages whose addresses are
		// given to others.
		if err := s.pin.unregister(); err != nil {
			return fmt.Errorf("segment: %s stays mapped, because a driver may still use its pages: %w; call Close again, or end the process", s.opt.Name, err)
		}
		s.pin = nil
	}
	m := s.mem
	s.mem = nil
	err := errors.Join(shmfile.Unmap(m), s.file.Close())
	if s.sidecar != nil {
		err = errors.Join(err, s.sidecar.Close()) // last, because it releases the writer's lock
	}
	return err
}

// Unlink removes the names of the segment and its sidecar, so that nobody can attach any
// more; mappings stay. A name that is gone already, or that another object has by now, is no
// error and is left alone. Unlink must be called before the mapping ends.
func (s *Segment) Unlink() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("%w: %s: unlink before closing", errClosed, s.opt.Name)
	}
	return s.unlink()
}

func (s *Segment) unlink() error {
	if s.file == nil {
		return nil
	}
	if shmfile.Same(s.file, s.path) {
		if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("segment: unlinking %s: %w", s.opt.Name, err)
		}
	}
	failpoint.Hit("segment.unlinked")
	if s.sidecar != nil {
		return s.sidecar.Remove()
	}
	return nil
}

// Leave ends the use of the segment, even while it is held. From then on Hold fails. The
// segment is unmapped by the last Release, or now if there is no hold. Calling Leave twice is
// fine, and so is Close after it. A writer calls Unlink before, unless another one will follow.
func (s *Segment) Leave() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holds > 0 {
		s.closed = true
		return nil
	}
	return s.close()
}
