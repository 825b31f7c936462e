package shmstore

import (
	"fmt"
	"sync"

	"github.com/ringcache/ringcache/internal/closing"
	"github.com/ringcache/ringcache/internal/evict"
	"github.com/ringcache/ringcache/shmring/segment"
)

// Store keeps payloads by key in a segment. There is one per segment.
//
// A store consists of three parts, each described at the top of its file: space places and evicts
// (space.go), lifetime decides what has to stay (lifetime.go), durability writes what other processes see
// (durability.go). The methods of Store take the lock, see whether the store is open, and ask the part.
// What holds between calls is what the parts' check methods verify ([Store.CheckStructure]).
type Store struct {
	opt  Options
	seg  *segment.Segment
	owns bool // created or adopted the segment, so removes it

	// mu guards all below, every Object and every Request. The exported methods of Store, Request,
	// Reservation and Fence take it. The parts never do: their methods are called with it held.
	mu         sync.Mutex
	state      closing.State
	space      space
	lifetime   lifetime
	durability durability
}

// Segment returns the segment, for its bytes. It is the store's: only Close may close
// it.
func (s *Store) Segment() *segment.Segment { return s.seg }

// lock takes the store's lock. It fails if the store is closed.
func (s *Store) lock() error {
	s.mu.Lock()
	if s.state.Closed {
		s.mu.Unlock()
		return s.closedError()
	}
	return nil
}

func (s *Store) closedError() error { return fmt.Errorf("%w: %s", errClosed, s.seg.Name()) }

// Find returns the object under a key. It changes nothing, and keeps nothing: the object may
// go as soon as Find returns. It fails with [ErrNotFound], also if the object can't be given
// to one more request, and with fs.ErrClosed.
func (s *Store) Find(key string) (*Object, error) {
	if err := s.lock(); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	return s.lifetime.peek(key)
}

// Remove makes a key absent, so that it can be put anew, and reports whether it was
// there. Handles that were given out can be read as before; the object goes once
// nobody can need it.
func (s *Store) Remove(key string) bool {
	if s.lock() != nil {
		return false
	}
	defer s.mu.Unlock()
	return s.lifetime.remove(key)
}

// Delete is Remove for an object that nobody needs, which goes at once, or when the last [Reader] is done
// with it. It fails with [ErrNotFound]; and with [segment.ErrBusy], and does nothing, if the object is
// leased, pinned or in quarantine.
func (s *Store) Delete(key string) error {
	if err := s.lock(); err != nil {
		return err
	}
	defer s.mu.Unlock()
	return s.lifetime.removeUnneeded(key)
}

// Clear makes every key absent, and frees what nobody can need. It fails with
// [segment.ErrBusy] while a reservation or a lease is open. Ids go on.
func (s *Store) Clear() error {
	if err := s.lock(); err != nil {
		return err
	}
	defer s.mu.Unlock()
	return s.lifetime.clear()
}

// Evict makes the objects under the given keys go at once, or all objects if no key is given, but
// for those that somebody may need, and parents of objects that stay. It returns the ids of those that went.
func (s *Store) Evict(keys ...string) ([]uint32, error) {
	if err := s.lock(); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	return s.lifetime.evict(keys)
}

// Pin keeps the object under a key, without a request, until Unpin or Clear, and
// reports whether it is there. A pin does not survive the process.
func (s *Store) Pin(key string) (bool, error) {
	if err := s.lock(); err != nil {
		return false, err
	}
	defer s.mu.Unlock()
	return s.lifetime.pin(key), nil
}

// Unpin ends the pins of the given keys that have one, or all pins if no key is given.
func (s *Store) Unpin(keys ...string) {
	if s.lock() != nil {
		return
	}
	defer s.mu.Unlock()
	s.lifetime.unpinKeys(keys)
}

// SetQuotas takes the place of Options.Quotas and Options.Quota. Who has more than the quota keeps it until the next put
// for the tenant, which evicts the tenant's objects until what stays is within the quota, or is refused.
func (s *Store) SetQuotas(quotas map[string]int64, each int64) {
	if s.lock() != nil {
		return
	}
	defer s.mu.Unlock()
	s.space.setQuotas(evict.Quotas{Of: quotas, Each: each})
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
	return Fence{s, s.lifetime.newFence()}
}

// Passed reports to the store that the readers have drained everything sent before
// the fence was taken: what was aborted before leaves quarantine.
func (f Fence) Passed() {
	if f.s == nil || f.s.lock() != nil {
		return
	}
	defer f.s.mu.Unlock()
	f.s.lifetime.passFence(f.n)
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
	err := s.lifetime.resetReaders(readers)
	s.wakeShutdown()
	return err
}
