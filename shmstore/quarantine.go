package shmstore

import (
	"fmt"
	"time"
)

// noEnd is no time at which a quarantine ends by itself.
var noEnd time.Time

// What is in quarantine is in a list. Only the last abortion of an object counts:
// its fence is the latest, and so is its end by time. The list is in the order of
// the fences.

// quarantine puts an object into quarantine, or makes it stay longer.
func (s *Store) quarantine(o *Object) {
	o.fence, o.until = s.fence, s.quarantineEnd()
	if o.quarantined == nil {
		o.quarantined = s.quarantined.PushBack(o)
	} else {
		s.skip(o)
		s.quarantined.MoveToBack(o.quarantined)
	}
	s.file(o, classOf(o))
}

// skip moves the place where looking goes on behind an object.
func (s *Store) skip(o *Object) {
	if s.next == o.quarantined {
		s.next = o.quarantined.Next()
	}
}

// leaveQuarantine takes an object out of the list.
func (s *Store) leaveQuarantine(o *Object) {
	s.skip(o)
	s.quarantined.Remove(o.quarantined)
	o.quarantined = nil
}

func (s *Store) quarantineEnd() time.Time {
	switch ttl := s.opt.QuarantineTTL; {
	case ttl < 0:
		return noEnd
	case ttl == 0:
		return time.Now().Add(10 * time.Minute)
	default:
		return time.Now().Add(ttl)
	}
}

// quarantineOver reports whether an object may leave quarantine. By time alone it may
// only if nobody can be inside: else some reader of an aborted handle may be, and
// the owner's counts can't tell whose reads were whose. It is called in a guard.
func (s *Store) quarantineOver(o *Object) bool {
	if !s.owner.Unread(o, false) {
		return true
	}
	return !o.until.IsZero() && !time.Now().Before(o.until) && !s.owner.Unread(o, true)
}

// release ends the quarantine of an object.
func (s *Store) release(o *Object) {
	s.leaveQuarantine(o)
	_ = s.changed(o) // what the sidecar has is more cautious
}

// releaseIfOver ends the quarantine of an object that may leave it.
func (s *Store) releaseIfOver(o *Object) {
	if o.quarantined == nil {
		return
	}
	_ = s.guard(func() error {
		if s.quarantineOver(o) {
			s.release(o)
		}
		return nil
	})
}

// Readers count without a word to the store. So whoever finds no room looks at objects in
// quarantine, in turn, and at so many at most that have to stay; one who waits
// comes back with a timer, and looks at more. What may go is paid for by having
// been aborted.
const (
	maxLooks     = 64
	maxPollLooks = 4096
)

// look releases the next object whose quarantine is over, if it is among the next
// few. It takes what it looked at in vain from looks. It is called in a guard.
func (s *Store) look(looks *int) bool {
	for ; *looks > 0 && s.quarantined.Len() > 0; *looks-- {
		e := s.next
		if e == nil {
			e = s.quarantined.Front()
		}
		s.next = e.Next()
		s.looked++
		if o := e.Value.(*Object); s.quarantineOver(o) {
			s.release(o)
			return true
		}
	}
	return false
}

// Fence is a moment in the order of what was sent to the readers.
type Fence struct {
	s *Store
	n uint64
}

// Fence marks the moment. Take it, then send something that every reader answers in
// order behind everything sent before, and call Passed when all have answered.
func (s *Store) Fence() Fence {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fence++
	return Fence{s, s.fence - 1}
}

// Passed reports to the store that the readers have drained everything sent before
// the fence was taken: what was aborted before leaves quarantine.
func (f Fence) Passed() {
	s := f.s
	if s == nil || s.lock() != nil {
		return
	}
	defer s.mu.Unlock()
	_ = s.guard(func() error {
		for e := s.quarantined.Front(); e != nil; e = s.quarantined.Front() {
			s.looked++
			o := e.Value.(*Object)
			if o.fence > f.n {
				break
			}
			s.release(o)
		}
		return nil
	})
}

// ResetReaders reports to the store that the processes which read so far are gone,
// and that readers new ones (0: as many as before) read from now on. Requests that
// were committed end, quarantine ends, and the owner's counts begin anew; the contents
// stay. Requests that were not committed go on.
func (s *Store) ResetReaders(readers int) error {
	if readers < 0 {
		return fmt.Errorf("%w: %d readers", errInvalid, readers)
	}
	if err := s.lock(); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if readers == 0 {
		readers = s.readers
	}
	if s.sidecar != nil { // first: if it is gone, nothing is reset
		err := s.guard(func() error {
			state := s.sidecar.State()
			state.Readers = readers
			s.sidecar.SetState(state)
			return nil
		})
		if err != nil {
			return err
		}
	}
	s.readers = readers
	for _, r := range s.requests {
		if r.state == requestCommitted {
			r.become(requestEnded)
			r.leases = nil
		}
	}
	for o := range s.visible() {
		o.leases -= o.sent
		s.leases -= o.sent
		o.sent = 0
		if o.quarantined != nil {
			s.leaveQuarantine(o)
		}
	}
	s.owner.Reset(readers, s.visible())
	for o := range s.visible() { // which may drop retired ones
		_ = s.changed(o) // what the sidecar has is more cautious
	}
	s.wakeShutdown()
	return nil
}
