package shmstore

import (
	"maps"
	"slices"
)

// chooseVictims sets victims to the ids of objects that make room for size bytes when they go, and
// are cheap to lose. It reports whether there are some, apart from those that are held.
func (s *space) chooseVictims(size int, held idSet) (ok bool) {
	need := s.extent(size)
	if o := s.spares.pick(s, need, held); o != nil {
		s.victims = append(s.victims[:0], o.chunk.id)
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
	s.looked += looked
	s.spares.end(looked, s.pool.Len())
	return ok
}

// freeEntry makes sure that the sidecar has an entry for one more object.
func (s *space) freeEntry(size int, few *int) error {
	var held idSet // by readers
	for s.noEntry() {
		victim := s.entries.pick(s, 0, held)
		if victim == nil {
			victim = s.cheapestEntry(held)
		}
		switch {
		case victim != nil:
			held.add(s.evict(append(s.victims[:0], victim.chunk.id)))
		case !s.lifetime.releaseNext(few):
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

// cheapestEntry returns the idle object that it costs least to lose, whatever its bytes, nil if there is none. Others
// that are cheap become spares.
func (s *space) cheapestEntry(held idSet) *Object {
	looked := 0
	s.entries.begin(0)
	best, _ := s.idle.Cheapest(func(o *Object) (float64, bool) {
		looked++
		loss, _ := s.loss(o)
		if held.has(o.chunk.id) {
			return 0, false
		}
		s.entries.offer(o, loss)
		return loss, true
	})
	s.looked += looked
	s.entries.end(looked, s.idle.Len())
	return best
}

// cheapestOf returns the idle object of a tenant that it costs least to lose for its bytes, nil if there is none.
func (s *space) cheapestOf(t *tenant, held idSet) *Object {
	best, _ := t.idle.Cheapest(func(o *Object) (float64, bool) {
		s.looked++
		loss, _ := s.loss(o)
		return loss / float64(o.extent()), !held.has(o.chunk.id)
	})
	return best
}

// loss returns what evicting an object loses, and whether it may be.
func (s *space) loss(o *Object) (float64, bool) {
	if o.class != classIdle {
		return 0, false
	}
	return s.evictor.Value(&o.cached), true // nothing, if it is retired
}

// evict makes idle objects go, children in front of their parents, but for those that a reader looks at
// in place and their ancestors, which it returns. If the memory is gone, those that are not dropped yet stay.
func (s *space) evict(ids []uint32) (held idSet) {
	done := 0
	defer func() {
		for _, id := range ids[done:] { // after a fault; one by one, since more may be gone
			if o := s.object(id); o != nil && o.state != discarded {
				_ = s.durability.guard(func() error { s.durability.show(id); return nil })
			}
		}
	}()
	holds := s.durability.hide(ids)
	for _, id := range ids {
		o := s.object(id)
		if _, ok := holds[id]; ok || o.hasChildren() {
			s.durability.show(id)
			held.add(idSet{id: {}})
		} else {
			if o.state == committed {
				s.evicted++
			}
			s.drop(o, s.evictor.Evict)
		}
		done++
	}
	return held
}

// evictAll evicts all idle objects, and parents of which all descendants go.
func (s *space) evictAll() ([]uint32, error) {
	var ids []uint32
	for id := range s.pool.Live() {
		if s.object(id).class.reachable() {
			ids = append(ids, id)
		}
	}
	return s.evictIdle(s.families.withDescendants(ids))
}

// evictIdle evicts idle objects, and returns the ids of those that went: not those that a reader
// looks at, nor those behind a fault.
func (s *space) evictIdle(ids []uint32) ([]uint32, error) {
	err := s.durability.guard(func() error { s.evict(ids); return nil })
	return slices.DeleteFunc(ids, func(id uint32) bool { return s.object(id) != nil }), err
}
