package shmstore

import (
	"github.com/ringcache/ringcache/internal/evict"
	"github.com/ringcache/ringcache/internal/line"
	"github.com/ringcache/ringcache/shmring"
)

// class is what keeps the bytes of an object in a store. The store keeps sums by
// class, so that nobody has to look at every object for them.
type class uint8

const (
	classNone        class = iota // has no chunk
	classReserved                 // is being written
	classLeased                   // by open requests, or pinned
	classQuarantined              // aborted, and maybe still to be read
	classAncestor                 // a descendant is in one of the classes above
	classParent                   // only its children, of which none is
	classIdle                     // nothing; but a reader of this library may look at it
	classes
)

// classOf returns the class that an object with a chunk should be in. A discarded
// one has a chunk only if the memory was gone when it was to be dropped.
func classOf(o *Object) class {
	switch {
	case o.state == reserved:
		return classReserved
	case o.leases > 0 || o.pinned:
		return classLeased
	case o.quarantined:
		return classQuarantined
	case o.hasChildren() && o.links().children.busy > 0:
		return classAncestor
	case o.hasChildren():
		return classParent
	}
	return classIdle
}

// ledger is who takes the bytes of a store: sums that change with each object, so that nobody scans.
type ledger struct {
	room       int64 // bytes that chunks can take
	maxObjects int   // that the sidecar, if any, has room for
	texts      int   // for how many objects more the texts of objects count
	bytes      [classes]int64
	idle       evict.Candidates[*Object]
	tenants    map[string]*tenant
}

// tenant is what one tenant has in a store.
type tenant struct {
	used      int64 // bytes
	idleBytes int64 // of them, that can be evicted: of idle objects and their ancestors
	idle      evict.Candidates[*Object]
	line      line.Line // those that wait for its quota
}

// The idle objects of a store, and those of each tenant, are candidates for eviction.
func placeInStore(o *Object) *int32  { return &o.placeInStore }
func placeOfTenant(o *Object) *int32 { return &o.placeOfTenant }

// count counts the chunk of a new object, for the store and its tenant.
func (s *space) count(o *Object) {
	o.takes = uint32(s.extent(int(o.chunk.size) - shmring.HeaderSize))
	o.search = s.search.n
	if o.tenant() != "" {
		s.tenantOf(o.tenant()).used += o.extent()
	}
	s.texts += o.texts()
	s.setClass(o, classOf(o))
}

// textOfObject is how many bytes of texts an object has for itself. They are on the heap, where an object
// takes about half as much beside them.
const textOfObject = 1 << 10

// texts returns for how many objects more an object counts, so that the memory for all of them has a bound:
// it would be as large as the segment.
func (o *Object) texts() int { return (o.key.len() + len(o.tenant()) + len(o.Note())) / textOfObject }

// uncount undoes count for a chunk that was freed.
func (s *space) uncount(o *Object) {
	s.texts -= o.texts()
	if o.tenant() != "" {
		s.tenantOf(o.tenant()).used -= o.extent()
	}
	s.setClass(o, classNone)
	s.forgetTenant(o.tenant())
}

func (l *ledger) tenantOf(name string) *tenant {
	t := l.tenants[name]
	if t == nil {
		t = &tenant{idle: evict.NewCandidates(placeOfTenant)}
		l.tenants[name] = t
	}
	return t
}

func (l *ledger) forgetTenant(name string) {
	if t := l.tenants[name]; t != nil && t.used == 0 && t.line.Empty() {
		delete(l.tenants, name)
	}
}

// reclassify counts an object that has a chunk as of the class that it is in now.
func (s *space) reclassify(o *Object) { s.setClass(o, classOf(o)) }

// setClass counts an object as of another class, and its ancestors as of those that follow.
func (s *space) setClass(o *Object, c class) {
	s.setOwnClass(o, c)
	s.families.passOn(o)
}

// setOwnClass is setClass without the ancestors.
func (s *space) setOwnClass(o *Object, c class) {
	was := o.class
	if c == was {
		return
	}
	o.class = c
	s.bytes[was] -= o.extent()
	s.bytes[c] += o.extent()
	s.bytes[classNone] = 0
	t := s.tenants[o.tenant()]
	if was == classIdle {
		s.idle.Remove(o)
		if t != nil {
			t.idle.Remove(o)
		}
	}
	if c == classIdle {
		s.idle.Add(o)
		if t != nil {
			t.idle.Add(o)
		}
	}
	if was.reachable() {
		o.search = s.search.n
	}
	if t != nil && was.reachable() != c.reachable() {
		if c.reachable() {
			t.idleBytes += o.extent()
		} else {
			t.idleBytes -= o.extent()
		}
	}
	mustHold(s.checkClass, o)
	if !was.reachable() && (c.reachable() || c == classNone) {
		s.available(o, t)
	}
}

// available takes note that the bytes of an object can be had now.
func (s *space) available(o *Object, t *tenant) {
	if o.search != s.search.n {
		s.search.need, s.search.held = 0, nil
	}
	s.wakeFirst(&s.waiters.Main)
	if t != nil {
		s.wakeFirst(&t.line)
	}
}

// wakeFirst wakes the first of a line, if what it waits for may be there.
func (s *space) wakeFirst(l *line.Line) {
	if f := l.First(); f != nil && s.mayFit(f) {
		s.waiters.Wake(f)
	}
}

// search is what the last search for room has shown, if it found none: that no run
// of holes and idle objects has need bytes, apart from objects that readers held.
// It holds until bytes can be had that could not be had then. An object whose
// search is n had its bytes available then.
type search struct {
	n    uint64
	need int64 // 0: nothing is known
	held idSet
}

// failed remembers that there is no room.
func (s *space) failed(need int64, held idSet) {
	s.search = search{s.search.n + 1, need, held}
}

// reachable returns the bytes that are free or can be evicted.
func (s *space) reachable() int64 { return s.room - int64(s.pool.Used()) + s.evictable() }

// evictable returns the bytes that can be evicted.
func (l *ledger) evictable() int64 { return l.bytes[classIdle] + l.bytes[classParent] }

// hopeless reports that there is no room for an extent, without looking for it.
func (s *space) hopeless(need int64) bool {
	return need > s.reachable() || s.search.need > 0 && need >= s.search.need
}

// released reports whether a reader let go of an object that was in the way of the
// last search.
func (s *space) released() bool {
	if s.search.need == 0 || len(s.search.held) == 0 {
		return false
	}
	holds := s.durability.held()
	for id := range s.search.held {
		if _, ok := holds[id]; !ok {
			return true
		}
	}
	return false
}

// mayFit reports whether what w waits for can be there.
func (s *space) mayFit(w *line.Waiter) bool {
	if w.Line() != &s.waiters.Main {
		t := s.tenants[w.Tenant]
		return t == nil || t.used-t.idleBytes+w.Need <= s.quotas.For(w.Tenant)
	}
	if s.noEntry() && s.idle.Len() == 0 {
		return false
	}
	return !s.hopeless(w.Need)
}

// noEntry reports whether the sidecar has room for no more object.
func (s *space) noEntry() bool {
	return s.durability.sidecar != nil && s.pool.Len()+s.texts >= s.maxObjects
}
