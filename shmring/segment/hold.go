package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/leasetable"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/internal/sidecar"
)

// Hold keeps the mapping from being unmapped until Release. It fails with fs.ErrClosed. Neither
// call takes a lock or allocates, unless the segment is about to end.
func (s *Segment) Hold() error {
	if !s.holders.enter() {
		return fmt.Errorf("%w: %s", errClosed, s.opt.Name)
	}
	return nil
}

// Release ends one Hold.
func (s *Segment) Release() {
	if s.holders.leave() {
		s.endLastHold()
	}
}

// endLastHold does what others left to the last holder.
func (s *Segment) endLastHold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signalIdle()
	if s.holders.closed() && s.holders.count() == 0 { // by Leave, meanwhile
		_ = s.unmap()
	}
}

// Holds returns the number of holds.
func (s *Segment) Holds() int { return s.holders.count() }

// Idle returns a channel that is closed as soon as there are no holds.
func (s *Segment) Idle() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signalIdle() // those who wait for an earlier moment
	if s.idleNow == nil {
		s.idleNow = make(chan struct{})
	}
	c := s.idleNow
	s.holders.await()
	s.signalIdle()
	return c
}

// signalIdle wakes those who wait, if there was a moment without holds. There may be new ones by
// now.
func (s *Segment) signalIdle() {
	if s.idleNow != nil && !s.holders.awaited() {
		close(s.idleNow)
		s.idleNow = nil
	}
}

// closeIdle lets nobody hold the mapping from now on, and fails if somebody does.
func (s *Segment) closeIdle() error {
	if n := s.holders.closeIdle(); n > 0 {
		return fmt.Errorf("%w: %s: %d views or reservations are open; release them first", ErrBusy, s.opt.Name, n)
	}
	return nil
}

// Close unmaps the segment; the shared memory object stays. While the segment is held, Close
// fails with [ErrBusy] and does nothing. Closing twice is fine.
func (s *Segment) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holders.closed() && s.holders.count() > 0 {
		return nil // left: the last Release unmaps
	}
	if err := s.closeIdle(); err != nil {
		return err
	}
	return s.unmap()
}

// Detach is Close, and first marks the state in the sidecar as clean: the writer ended by
// plan, so the next writer need not look for damage.
func (s *Segment) Detach() error { return s.end(s.markClean) }

// Destroy is Unlink and Close in one step. While the segment is held, Destroy fails with
// [ErrBusy] and does neither.
func (s *Segment) Destroy() error { return s.end(s.unlink) }

// end does one more thing with a segment, which nobody may hold, and unmaps it. Ending twice is fine.
func (s *Segment) end(last func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holders.closed() {
		return nil
	}
	if err := s.closeIdle(); err != nil {
		return err
	}
	return errors.Join(last(), s.unmap())
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

// Unlink removes the names of the segment, its sidecar and its leases, so that nobody can attach any
// more; mappings stay. A name that is gone already, or that another object has by now, is no
// error and is left alone. Unlink must be called before the mapping ends.
func (s *Segment) Unlink() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holders.closed() {
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
		return errors.Join(removeLeases(s.path, s.sidecar), s.sidecar.Remove())
	}
	return nil
}

// removeLeases removes the table of leases beside a segment, and what the daemon knows of engines, if they are there:
// before the sidecar, whose lock the caller has, so that they are not left alone.
func removeLeases(path string, f *sidecar.File) error {
	if !f.Named() {
		return nil
	}
	return errors.Join(leasetable.Remove(path), shmfile.RemoveEngines(path))
}

// Yield is Detach that does not wait: another writer may adopt the segment at once, and the mapping stays until the
// last Release, as after Leave. What holds it must no longer write anything but payloads that the next writer knows of.
func (s *Segment) Yield() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holders.closed() {
		return nil
	}
	held := s.holders.close() > 0
	err := s.markClean()
	if !held {
		return errors.Join(err, s.unmap())
	}
	if s.sidecar != nil {
		err = errors.Join(err, s.sidecar.ReleaseOwner())
	}
	return err
}

// markClean reports in the sidecar, if there is one, that the writer ended by plan.
func (s *Segment) markClean() error {
	if s.sidecar == nil {
		return nil
	}
	return fault.Guard(func() error {
		state := s.sidecar.State()
		state.Clean = true
		s.sidecar.SetState(state)
		return nil
	})
}

// Leave ends the use of the segment, even while it is held. From then on Hold fails. The
// segment is unmapped by the last Release, or now if there is no hold. Calling Leave twice is
// fine, and so is Close after it. A writer calls Unlink before, unless another one will follow.
func (s *Segment) Leave() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holders.close() > 0 {
		return nil
	}
	return s.unmap()
}
