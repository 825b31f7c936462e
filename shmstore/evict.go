package shmstore

import (
	"maps"
	"slices"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/line"
	"github.com/ringcache/ringcache/shmring"
)

// place takes a chunk, and evicts what is cheapest to lose until there is room.
func (s *Store) place(size int, tenant string, as line.Turn) (address uint64, id uint32, payload []byte, err error) {
	need := s.extent(size)
	if as.Passes() && need <= s.room && !s.waiters.Main.MayPass(need, s.room) {
		return 0, 0, nil, s.fullError(size, s.search.held)
	}
	if s.released() {
		s.search.need, s.search.held = 0, nil
	}
	looks := maxLooks
	if as&^line.OfTenant == line.Polling {
		looks = maxPollLooks
	}
	looks = min(looks, s.quarantined.objects.Len())
	if err := s.admit(size, tenant, as, &looks); err != nil {
		return 0, 0, nil, err
	}
	s.markIDs()
	failpoint.Hit("pool.alloc")
	if err := s.freeEntry(size, &looks); err != nil {
		return 0, 0, nil, err
	}
	never := need > s.room || size > shmring.MaxChunk-shmring.HeaderSize
	var held idSet // by readers
	for {
		if never || s.pool.Fits(size) {
			address, id, payload, err = s.pool.Alloc(size)
			failpoint.Hit("pool.allocated")
			if err == nil && as.Passes() {
				s.hasPassed(need, tenant, as)
			}
			return address, id, payload, err
		}
		if !s.hopeless(need) {
			if s.chooseVictims(size, held) || s.chooseFamilies(size, held) {
				held.add(s.evict(s.victims))
				continue
			}
			s.failed(need, held)
		}
		if !s.look(&looks) {
			return 0, 0, nil, s.fullError(size, s.search.held)
		}
	}
}

// chooseVictims sets victims to the ids of objects that make room for size bytes when they go, and
// are cheap to lose. It reports whether there are some, apart from those that are held.
func (s *Store) chooseVictims(size int, held idSet) (ok bool) {
	need := s.extent(size)
	if o := s.spares.take(s, need, held); o != nil {
		s.victims = append(s.victims[:0], o.chunk.ID)
		return true
	}
	s.spares.begin(need)
	looked := 0
	s.victims, ok = s.pool.Cheapest(s.victims[:0], size, func(id uint32, owner any) (float64, bool) {
		looked++
		if held.has(id) {
			return 0, false
		}
		o := owner.(*Object)
		loss, may := s.loss(o)
		if may {
			s.spares.offer(o, loss)
		}
		return loss, may
	})
	s.counts.looked += looked
	s.spares.end(looked, s.pool.Len())
	return ok
}

// freeEntry makes sure that the sidecar has an entry for one more object.
func (s *Store) freeEntry(size int, looks *int) error {
	var held idSet // by readers
	for s.noEntry() {
		victim := s.entries.take(s, 0, held)
		if victim == nil {
			victim = s.cheapest(s.idle.items, held, &s.entries)
		}
		switch {
		case victim != nil:
			held.add(s.evict(append(s.victims[:0], victim.chunk.ID)))
		case !s.look(looks):
			return s.fullError(size, held)
		}
	}
	return nil
}

// idSet is a set of ids; nil is an empty one.
type idSet map[uint32]struct{}

func (s idSet) has(id uint32) bool {
	_, ok := s[id]
	return ok
}

func (s *idSet) add(ids idSet) {
	if *s == nil && len(ids) > 0 {
		*s = idSet{}
	}
	maps.Copy(*s, ids)
}

// maxSample bounds a search for one object: the cheapest of so many is cheap
// enough.
const maxSample = 64

// cheapest returns the idle object that it costs least to lose, of some: other ones
// the next time. nil means that there is none. Others that are cheap become spares.
func (s *Store) cheapest(idle []*Object, held idSet, keep *spares) (best *Object) {
	least, n := 0.0, 0
	keep.begin(0)
	for i := range idle {
		o := idle[(s.sample+i)%len(idle)]
		s.counts.looked++
		n++
		if c, _ := s.loss(o); !held.has(o.chunk.ID) {
			if best == nil || c < least {
				best, least = o, c
			}
			keep.offer(o, c)
		}
		if n >= maxSample && best != nil {
			break
		}
	}
	keep.end(n, len(idle))
	s.sample = (s.sample + n) % max(len(idle), 1)
	return best
}

// loss returns what evicting an object loses, and whether it may be.
func (s *Store) loss(o *Object) (float64, bool) {
	if o.class != classIdle {
		return 0, false
	}
	return s.evictor.Value(&o.cached), true // nothing, if it is retired
}

// evict makes idle objects go, children in front of their parents, but for those that a reader looks at
// in place and their ancestors, which it returns. If the memory is gone, those that are not dropped yet stay.
func (s *Store) evict(ids []uint32) (held idSet) {
	done := 0
	defer func() {
		for _, id := range ids[done:] { // after a fault; one by one, since more may be gone
			if o := s.object(id); o != nil && o.state != discarded {
				_ = s.guard(func() error { s.pool.Publish(id); return nil })
			}
		}
	}()
	for _, id := range ids {
		s.pool.Kill(id)
		failpoint.Hit("pool.evict.killed")
	}
	var holds map[uint32]struct{}
	if s.sidecar != nil {
		var dead int
		holds, dead = s.sidecar.HeldOf(ids)
		s.counts.dead += dead
	}
	for _, id := range ids {
		o := s.object(id)
		if _, ok := holds[id]; ok || o.hasChildren() {
			s.pool.Publish(id) // whoever saw it dead was late anyway
			held.add(idSet{id: {}})
		} else {
			if o.state == committed {
				s.counts.evicted++
			}
			s.drop(o, s.evictor.Evict)
		}
		done++
	}
	return held
}

// Evict makes the objects under the given keys go at once, or all objects if no key is given, but
// for those that somebody may need, and parents of objects that stay. It returns the ids of those that went.
func (s *Store) Evict(keys ...string) ([]uint32, error) {
	if err := s.lock(); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if len(keys) == 0 {
		return s.evictAll()
	}
	var ids []uint32
	for _, key := range keys {
		if o, ok := s.index[key]; ok {
			if s.releaseIfOver(o); o.class == classIdle {
				ids = append(ids, o.chunk.ID)
			}
		}
	}
	slices.Sort(ids)
	return s.evictIdle(slices.Compact(ids))
}

func (s *Store) evictAll() ([]uint32, error) {
	err := s.guard(func() error {
		for looks := s.quarantined.objects.Len(); s.look(&looks); {
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var ids []uint32
	for id := range s.pool.Live() {
		if s.object(id).class.reachable() {
			ids = append(ids, id)
		}
	}
	return s.evictIdle(s.withDescendants(ids))
}

// evictIdle evicts idle objects, and returns the ids of those that went: not those that a reader
// looks at, nor those behind a fault.
func (s *Store) evictIdle(ids []uint32) ([]uint32, error) {
	err := s.guard(func() error { s.evict(ids); return nil })
	return slices.DeleteFunc(ids, func(id uint32) bool { return s.object(id) != nil }), err
}

// fullError returns what is in the way; readers hold the objects held.
func (s *Store) fullError(size int, held idSet) error {
	e := &FullError{
		Need: size + shmring.HeaderSize, Used: s.pool.Used(), Size: s.opt.Size, Waiting: s.waiters.Main.Wanted(),
		Free: s.room - int64(s.pool.Used()), LargestHole: int64(s.pool.Largest()),
		Reserved: s.bytes[classReserved], Leased: s.bytes[classLeased] + s.bytes[classKept], Quarantined: s.bytes[classQuarantined], Evictable: s.evictable(),
	}
	for id := range held {
		if o := s.object(id); o != nil && o.class.reachable() {
			e.Viewed += o.extent
			e.Evictable -= o.extent
		}
	}
	if s.noEntry() {
		e.MaxObjects = s.maxObjects
	}
	return e
}
