package shmstore

import (
	"fmt"
	"time"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/internal/payload"
)

// Reservation is an object under construction: its chunk is taken, its key is
// not visible yet. Fill it in any order, from any goroutine, then Commit; or Discard.
// A reservation blocks Close and Clear.
type Reservation struct {
	r       *Request
	o       *Object
	key     string
	payload []byte // of the chunk, with what the store adds
	front   int    // bytes in front of the description
	done    bool   // guarded by the store's lock
}

// Object returns the object that will be put.
func (r *Reservation) Object() *Object { return r.o }

// Bytes returns the payload, to be filled. It must not be touched after Commit or Discard.
//
// In a store with a PayloadOwner, Bytes returns the whole chunk behind the header. Only the
// front and the back may be filled, see PutOptions.Front.
func (r *Reservation) Bytes() []byte {
	if !r.r.s.durability.plain {
		return r.payload
	}
	return r.payload[payload.MinOffset(true):r.front:r.front]
}

// SetCost replaces PutOptions.Cost, for what is known only once the object is
// made. It does nothing after Commit or Discard.
func (r *Reservation) SetCost(d time.Duration) {
	s := r.r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.done {
		return
	}
	r.o.cost = float64(max(d, 1))
	_ = s.durability.guard(func() error { payload.WriteCost(r.payload[r.front:], r.o.cost); return nil })
}

// Commit makes the object visible under its key. The request has it from now on, and
// uses it n times (see Request.Lookup). It fails when called after Commit or Discard,
// with [ErrEnded] if the request is not open, and with [CorruptError] if the memory is
// gone.
func (r *Reservation) Commit(n int) (*Object, error) {
	s := r.r.s
	sum := s.durability.checksum(r.o, r.payload) // without the lock: nobody writes to the payload any more
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.r.state != requestOpen && !r.done && !s.state.Closed {
		return nil, fmt.Errorf("%w; discard the reservation", r.r.notOpen())
	}
	if err := r.commit(sum); err != nil {
		return nil, err
	}
	if err := r.r.lease(r.o, n); err != nil {
		s.lifetime.retire(r.o) // nobody has a handle
		return nil, err
	}
	return r.o, nil
}

// commit makes the object visible. The caller leases it at once: it must not be idle on
// the way.
func (r *Reservation) commit(sum uint32) error {
	s, o := r.r.s, r.o
	if r.done {
		return fmt.Errorf("%w: the reservation of key %q ended already", errInvalid, r.key)
	}
	if s.state.Closed { // abandoned
		r.discard()
		return s.closedError()
	}
	failpoint.Hit("commit")
	err := s.durability.guardObject(o, func() error {
		s.lifetime.owner.Commit(o)
		mem.Fence() // everything written so far comes before the handle
		o.chunk.sum, o.fullSum = sum, s.opt.FullSums
		s.durability.publish(o, s.lifetime.useWord(o))
		return nil
	})
	if err != nil {
		r.discard()
		return err
	}
	s.space.published(o, r.key)
	s.lifetime.commit(o, r.key)
	r.end()
	s.space.waiters.WakeKey(r.key)
	failpoint.Hit("committed")
	return nil
}

// Discard gives the reservation up. It does nothing after Commit, or when
// called again.
func (r *Reservation) Discard() {
	s := r.r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if !r.done {
		r.discard()
	}
}

func (r *Reservation) discard() {
	r.o.state = discarded
	if s := r.r.s; !s.state.Closed {
		s.space.discard(r.o)
	}
	r.end()
}

func (r *Reservation) end() {
	s := r.r.s
	r.done = true
	r.r.pending--
	s.lifetime.pending.remove(r.o)
	s.seg.Release()
	s.wakeShutdown()
}
