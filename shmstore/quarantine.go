package shmstore

import (
	"container/list"
	"fmt"
	"time"
)

// noEnd is no time at which a quarantine ends by itself.
var noEnd time.Time

// quarantined is the stay of an object in quarantine.
type quarantined struct {
	o     *Object
	fence uint64        // the one that ends it
	until time.Time     // or then, if nobody is inside
	place *list.Element // in quarantine.objects
}

// quarantine is what is in quarantine, in the order of the fences. Only the last abortion of an
// object counts: its fence is the latest, and so is its end by time.
type quarantine struct {
	objects list.List     // of *quarantined
	next    *list.Element // where looking goes on, nil: at the front
	fence   uint64        // the next one's number
}

// add puts an object into quarantine, or makes it stay longer.
func (q *quarantine) add(o *Object, until time.Time) {
	if o.quarantined == nil {
		o.quarantined = &quarantined{o: o}
		o.quarantined.place = q.objects.PushBack(o.quarantined)
	} else {
		q.skip(o)
		q.objects.MoveToBack(o.quarantined.place)
	}
	o.quarantined.fence, o.quarantined.until = q.fence, until
}

// remove takes an object out of quarantine.
func (q *quarantine) remove(o *Object) {
	q.skip(o)
	q.objects.Remove(o.quarantined.place)
	o.quarantined = nil
}

// skip moves the place where looking goes on behind an object.
func (q *quarantine) skip(o *Object) {
	if q.next == o.quarantined.place {
		q.next = q.next.Next()
	}
}

// front returns the object with the earliest fence, nil if there is none.
func (q *quarantine) front() *Object {
	if e := q.objects.Front(); e != nil {
		return e.Value.(*quarantined).o
	}
	return nil
}

// turn returns the object to look at next, of at least one.
func (q *quarantine) turn() *Object {
	e := q.next
	if e == nil {
		e = q.objects.Front()
	}
	q.next = e.Next()
	return e.Value.(*quarantined).o
}

// quarantine puts an object into quarantine, or makes it stay longer.
func (s *Store) quarantine(o *Object) {
	s.quarantined.add(o, s.quarantineEnd())
	s.file(o, classOf(o))
}

func (s *Store) quarantineEnd() time.Time {
	switch ttl := s.opt.QuarantineTTL; {
	case ttl < 0:
		return noEnd
	case ttl == 0:
		return time.Now().Add(defaultQuarantineTTL)
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
	until := o.quarantined.until
	return !until.IsZero() && !time.Now().Before(until) && !s.owner.Unread(o, true)
}

// release ends the quarantine of an object.
func (s *Store) release(o *Object) {
	s.quarantined.remove(o)
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
	for ; *looks > 0 && s.quarantined.objects.Len() > 0; *looks-- {
		s.counts.looked++
		if o := s.quarantined.turn(); s.quarantineOver(o) {
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
	s.quarantined.fence++
	return Fence{s, s.quarantined.fence - 1}
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
		for o := s.quarantined.front(); o != nil && o.quarantined.fence <= f.n; o = s.quarantined.front() {
			s.counts.looked++
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
			r.leases.clear()
		}
	}
	for o := range s.visible() {
		o.leases -= o.sent
		s.leases -= int(o.sent)
		o.sent = 0
		if o.quarantined != nil {
			s.quarantined.remove(o)
		}
	}
	s.owner.Reset(readers, s.visible())
	for o := range s.visible() { // which may drop retired ones
		_ = s.changed(o) // what the sidecar has is more cautious
	}
	s.wakeShutdown()
	return nil
}
