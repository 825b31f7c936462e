// Package closing ends a store over a segment: at once if nothing is open, after what
// is open, or by force.
//
// See docs/decisions.md, "Shutdown waits, Abandon does not, Close refuses".
package closing

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Segment is what a store is in. *segment.Segment is one.
type Segment interface {
	Name() string
	Close() error
	Detach() error
	Destroy() error
	Unlink() error
	Leave() error
	Idle() <-chan struct{}
}

// Store is what has to be known of a store that is to be closed. Its functions are
// called under the lock.
type Store struct {
	Lock    sync.Locker
	Segment Segment
	// Owns reports whether the store created or adopted the segment, so removes it.
	Owns bool
	// ErrClosed and ErrBusy are the sentinels of errors.
	ErrClosed, ErrBusy error
	// Leased reports whether something is leased, which blocks Close, and Open whether
	// anything at all is open that Shutdown waits for, but for views.
	Leased, Open func() bool
	// Busy returns the error that names what is open, and wraps cause if that is not nil.
	Busy func(cause error) error
	// End ends everything that is open, and WakeAll wakes everyone who waits.
	End, WakeAll func()
}

// State is how far a store is closed. The zero value is an open store. Its fields are
// guarded by the lock.
type State struct {
	Closed   bool
	Stopping bool          // Shutdown was called
	shut     bool          // Shutdown has closed the store
	drained  chan struct{} // closed when nothing is open; nil if nobody waits for that
}

// Close closes the segment, and removes it if the store owns it; or fails, and does
// nothing, while something is open.
func (c *State) Close(s Store) error { return c.close(s, s.ending()) }

// Detach closes the segment and leaves it for the next one.
func (c *State) Detach(s Store) error { return c.close(s, s.Segment.Detach) }

// ending is what Close does to the segment.
func (s *Store) ending() func() error {
	if s.Owns {
		return s.Segment.Destroy
	}
	return s.Segment.Close
}

func (c *State) close(s Store, end func() error) error {
	s.Lock.Lock()
	defer s.Lock.Unlock()
	if c.Closed {
		return nil
	}
	return c.finish(s, end)
}

// finish closes the store if nothing is open.
func (c *State) finish(s Store, end func() error) error {
	if s.Leased() {
		return s.Busy(nil)
	}
	err := end()
	if errors.Is(err, s.ErrBusy) {
		return s.Busy(nil)
	}
	c.markClosed(s) // whatever else went wrong, the memory is gone
	return err
}

// markClosed ends what is open and wakes whoever waits.
func (c *State) markClosed(s Store) {
	c.Closed = true
	s.End()
	s.WakeAll()
	c.Wake(s)
}

// Shutdown takes nothing new, waits until everything has ended, or ctx, and closes the
// store.
func (c *State) Shutdown(ctx context.Context, s Store) error {
	for first := true; ; first = false {
		s.Lock.Lock()
		if c.Closed {
			s.Lock.Unlock()
			if first || c.shut {
				return nil
			}
			return fmt.Errorf("%w: %s: the store was closed or abandoned while Shutdown waited",
				s.ErrClosed, s.Segment.Name())
		}
		c.Stopping = true
		s.WakeAll()
		if c.drained == nil {
			c.drained = make(chan struct{})
		}
		ended := c.drained // also by Abandon
		var free <-chan struct{}
		if !s.Open() {
			err := c.finish(s, s.ending())
			if !errors.Is(err, s.ErrBusy) {
				c.shut = true
				s.Lock.Unlock()
				return err
			}
			free = s.Segment.Idle() // a view
		}
		s.Lock.Unlock()
		select {
		case <-ended:
		case <-free:
		case <-ctx.Done():
			s.Lock.Lock()
			defer s.Lock.Unlock()
			return s.Busy(ctx.Err())
		}
	}
}

// Draining reports whether Shutdown waits.
func (c *State) Draining() bool { return c.drained != nil }

// Wake wakes Shutdown when the last thing that it waits for has ended. It is called
// under the lock.
func (c *State) Wake(s Store) {
	if c.drained != nil && (c.Closed || !s.Open()) {
		close(c.drained)
		c.drained = nil
	}
}

// Yield closes the store by force, by a function that leaves the segment to the next writer.
func (c *State) Yield(s Store, end func() error) error {
	s.Lock.Lock()
	defer s.Lock.Unlock()
	if c.Closed {
		return nil
	}
	c.markClosed(s)
	return end()
}

// Abandon closes the store by force.
func (c *State) Abandon(s Store) error {
	return c.Yield(s, func() error {
		var err error
		if s.Owns {
			err = s.Segment.Unlink()
		}
		return errors.Join(err, s.Segment.Leave())
	})
}
