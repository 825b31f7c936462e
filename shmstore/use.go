package shmstore

import (
	"github.com/ringcache/ringcache/internal/evict"
	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/shmring"
)

// idBlock is how many ids are marked as given out at a time.
const idBlock = 1 << 16

// markIDs makes sure that the next id is marked, so that whoever adopts the
// segment goes on behind it.
func (s *Store) markIDs() {
	if s.sidecar == nil {
		return
	}
	next, n := s.pool.NextID(), uint32(s.pool.Len()) // as many may be skipped
	if left := (s.markedIDs - next) % shmring.IDLimit; left <= n {
		state := s.sidecar.State()
		state.NextID = (next + idBlock + n) % shmring.IDLimit
		s.sidecar.SetState(state)
		s.markedIDs = state.NextID
	}
}

// publish makes a chunk that is filled readable and lasting.
func (s *Store) publish(o *Object) {
	if s.sidecar != nil {
		failpoint.Hit("pool.publish")
		word := s.useWord(o)
		o.entry = int32(s.sidecar.Put(o.chunk, word))
		o.word = word
	}
	s.pool.Publish(o.chunk.ID)
	failpoint.Hit("pool.published")
	s.value(o)
}

// value makes an object one of those that the eviction policy compares.
func (s *Store) value(o *Object) {
	s.evictor.AddClaimed(&o.cached, o.key, evict.Claim{Tenant: o.tenant(), Cost: o.cost, Bytes: o.extent, Room: s.room})
}

// drop frees the chunk of an object and forgets it; forget is what the eviction
// policy does with it. If the memory is gone, the object stays as it is.
func (s *Store) drop(o *Object, forget func(*evict.Entry)) {
	// Shared memory first. The id of an object that was never published is dead.
	if o.entry >= 0 {
		s.pool.Kill(o.chunk.ID)
		s.sidecar.Drop(int(o.entry))
		o.entry = -1
	} else if s.sidecar == nil && o.state != discarded {
		s.pool.Kill(o.chunk.ID)
	}
	failpoint.Hit("pool.drop")
	// From here on nothing touches it.
	s.pool.Release(o.chunk.ID) // first, so that who is woken finds the bytes
	s.unaccount(o)
	forget(&o.cached)
	if o.quarantined != nil {
		s.quarantined.remove(o)
	}
	s.forget(o)
	mustHold(s.checkFreed, o)
}

// discard gives up a chunk that was not published. An object that can't be dropped
// stays idle, so that it goes when room is needed.
func (s *Store) discard(o *Object) {
	if err := s.guard(func() error { s.drop(o, s.evictor.Remove); return nil }); err != nil {
		s.leave(o)
		s.file(o, classOf(o))
	}
}

// The use word of the sidecar: bit 63 reports that someone may need the object, bit
// 62 that it is retired; the low 32 bits are the owner's.
const (
	useBusy    = 1 << 63
	useRetired = 1 << 62
	// unwritten is no use word, since a word's bits 32 to 61 are 0.
	unwritten = 1<<64 - 1
)

func (s *Store) useWord(o *Object) uint64 {
	u := uint64(s.owner.Word(o))
	if o.leases > 0 || o.quarantined != nil {
		u |= useBusy
	}
	if o.state == retired {
		u |= useRetired
	}
	return u
}

// changed is called when the uses, the leases or the state of an object are others
// now. An error means that the use word is another one and could not be written to the
// sidecar: then nobody may get a handle.
func (s *Store) changed(o *Object) error {
	if o.state == reserved || o.state == discarded {
		return nil
	}
	mustHold(s.checkHeld, o)
	s.file(o, classOf(o))
	return s.guard(func() error { s.update(o); return nil })
}

// update writes the use word, and writes off what nobody will read any more.
func (s *Store) update(o *Object) {
	if o.state == retired { // whatever becomes of the sidecar
		s.evictor.Remove(&o.cached)
	}
	if o.state == retired && o.quarantined != nil && s.quarantineOver(o) {
		s.quarantined.remove(o)
		s.file(o, classOf(o))
	}
	if o.leases == 0 && o.quarantined == nil {
		s.owner.Idle(o)
	}
	if want := s.useWord(o); o.entry >= 0 && o.word != want {
		s.sidecar.SetUse(int(o.entry), want)
		o.word = want
	}
	if o.state == retired && o.class == classIdle {
		s.evict([]uint32{o.chunk.ID}) // unless a reader looks at it; then it goes when room is needed
	}
}
