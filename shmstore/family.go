package shmstore

// Families: an object whose key others name as their parent (Options.Parent) stays until they are
// gone, and while one of them is being stored. So what goes first is always a leaf.
//
// A kin is the children of one key, present or not: a child that comes without its parent waits
// there, and is found when the parent comes. Each counts how many of its children are busy, which
// are those that can't be evicted, together with those of whose own children some are busy. So whether
// an object may go is one look at a counter, and a change is passed on to the parent only if
// the parent's answer changes.
//
// Somebody may put objects that are each other's ancestors. The one that would close such a ring
// has no parent.

// kin is the children of a key. It exists as long as there are some.
type kin struct {
	key   string
	head  *Object // committed under the key; nil if it is absent
	first *Object // of the children
	n     int32   // children that are committed or reserved
	busy  int32   // of them
}

// relatives are those of one object.
type relatives struct {
	of         *kin // its children, if it is committed and has some
	under      *kin // where it is a child; nil if it has no parent
	prev, next *Object
	busy       bool   // it is counted in under.busy
	walk       uint64 // the last one that came by, see families.walk
}

// families are all kin of a store, by the key of the parent.
type families struct {
	kin  map[string]*kin
	walk uint64 // number of the last walk
}

// busy reports whether an object of a class can't be evicted, and neither can its parent.
func (c class) busy() bool { return c >= classReserved && c <= classKept }

// reachable reports whether an object of a class can be evicted, perhaps after its children.
func (c class) reachable() bool { return c == classParent || c == classIdle }

// join makes an object that is about to be stored a child of its parent, which stays from now on.
func (s *Store) join(o *Object) {
	if s.opt.Parent == nil {
		return
	}
	parent := s.opt.Parent(o.key, o.Note())
	if parent == "" || parent == o.key {
		return
	}
	k := s.families.kin[parent]
	if k == nil {
		k = &kin{key: parent, head: s.index[parent]}
		s.families.kin[parent] = k
		if k.head != nil {
			k.head.relate().of = k
		}
	}
	r := o.relate()
	r.under, r.busy, r.next = k, true, k.first
	if k.first != nil {
		k.first.rel.prev = o
	}
	k.first = o
	k.n++
	k.busy++
	s.refile(k.head)
}

func (o *Object) relate() *relatives {
	if o.rel == nil {
		o.rel = new(relatives)
	}
	return o.rel
}

// leave takes an object away from its parent.
func (s *Store) leave(o *Object) {
	if o.rel == nil || o.rel.under == nil {
		return
	}
	r := o.rel
	k := r.under
	if r.prev != nil {
		r.prev.rel.next = r.next
	} else {
		k.first = r.next
	}
	if r.next != nil {
		r.next.rel.prev = r.prev
	}
	k.n--
	if r.busy {
		k.busy--
	}
	r.under, r.prev, r.next, r.busy = nil, nil, nil, false
	if k.n == 0 {
		delete(s.families.kin, k.key)
		if k.head != nil {
			k.head.rel.of = nil
			k.head.forgetRelatives()
		}
	}
	s.refile(k.head)
	o.forgetRelatives()
}

// lead makes an object that is committed the parent of the children that waited for it.
func (s *Store) lead(o *Object) {
	k := s.families.kin[o.key]
	if k == nil {
		return
	}
	for p := o.parent(); p != nil; p = p.parent() {
		if k.has(p) {
			o.loner = true
			s.leave(o)
			break
		}
	}
	k.head = o
	o.relate().of = k
}

// has reports whether an object is one of the children.
func (k *kin) has(o *Object) bool { return o.rel != nil && o.rel.under == k }

// abdicate leaves the children of an object without a parent.
func (s *Store) abdicate(o *Object) {
	if o.rel != nil && o.rel.of != nil {
		o.rel.of.head = nil
		o.rel.of = nil
		o.forgetRelatives()
	}
}

func (o *Object) forgetRelatives() {
	if o.rel.of == nil && o.rel.under == nil {
		o.rel = nil
	}
}

// parent returns the parent of an object, nil if it has none or it is absent.
func (o *Object) parent() *Object {
	if o.rel == nil || o.rel.under == nil {
		return nil
	}
	return o.rel.under.head
}

// hasChildren reports whether a child of an object is there.
func (o *Object) hasChildren() bool { return o.rel != nil && o.rel.of != nil }

// refile counts an object, if there is one, as of the class that it is in now.
func (s *Store) refile(o *Object) {
	if o != nil && o.class != classNone {
		s.file(o, classOf(o))
	}
}

// tell passes on to the ancestors of an object that it is of another class now.
func (s *Store) tell(o *Object) {
	for o != nil && o.rel != nil && o.rel.under != nil {
		busy := o.class.busy()
		if busy == o.rel.busy {
			return
		}
		o.rel.busy = busy
		k := o.rel.under
		if busy {
			k.busy++
		} else {
			k.busy--
		}
		if o = k.head; o == nil || classOf(o) == o.class {
			return
		}
		s.fileOne(o, classOf(o))
	}
}

// reunite makes families of all objects, which were adopted.
func (s *Store) reunite() {
	if s.opt.Parent == nil {
		return
	}
	index := s.index
	s.index = nil // so that nobody has a parent until those in a ring are known
	for o := range s.all() {
		if o.state == committed || o.state == reserved {
			s.join(o)
			s.tell(o)
		}
	}
	s.index = index
	before := s.families.walk
	for o := range s.all() {
		s.families.walk++
		// Up to where an earlier walk went on.
		for x := o; x != nil && x.rel != nil && x.rel.walk <= before; {
			x.rel.walk = s.families.walk
			p := s.index[x.rel.under.key]
			if p != nil && p.rel != nil && p.rel.walk == s.families.walk {
				x.loner = true
				s.leave(x)
				break
			}
			x = p
		}
	}
	for key, k := range s.families.kin {
		if o := s.index[key]; o != nil {
			k.head = o
			o.relate().of = k
			s.refile(o)
		}
	}
}

// maxDescendants bounds what a search looks at of the descendants of one object.
const maxDescendants = 16

// lossOfFamily returns about what evicting an object and its descendants loses, and whether they
// may be evicted.
func (s *Store) lossOfFamily(o *Object) (sum float64, may bool) {
	if !o.class.reachable() {
		return 0, false
	}
	n := 0
	for d := o; d != nil && n < maxDescendants; d = d.nextOf(o) {
		sum += s.evictor.Value(&d.cached)
		n++
	}
	return sum, true
}

// nextOf returns what follows o in the family of top: each object is in front of its children.
func (o *Object) nextOf(top *Object) *Object {
	if o.hasChildren() {
		return o.rel.of.first
	}
	for o != top {
		if o.rel.next != nil {
			return o.rel.next
		}
		o = o.parent()
	}
	return nil
}

// appendFamily appends the ids of an object and its descendants, each behind its children, but
// for those that this walk has been at.
func (s *Store) appendFamily(ids []uint32, top *Object) []uint32 {
	if !s.firstVisit(top) {
		return ids
	}
	o := top
	for {
		// Down to the first child that was not visited.
		if o.hasChildren() {
			if c := s.unvisited(o.rel.of.first); c != nil {
				o = c
				continue
			}
		}
		ids = append(ids, o.chunk.ID)
		if o == top {
			return ids
		}
		if c := s.unvisited(o.rel.next); c != nil {
			o = c
		} else {
			o = o.parent()
		}
	}
}

// unvisited returns the first of an object and its later siblings that this walk has not been at,
// and marks it.
func (s *Store) unvisited(o *Object) *Object {
	for ; o != nil; o = o.rel.next {
		if s.firstVisit(o) {
			return o
		}
	}
	return nil
}

func (s *Store) firstVisit(o *Object) bool {
	if o.rel == nil {
		return true
	}
	first := o.rel.walk != s.families.walk
	o.rel.walk = s.families.walk
	return first
}

// chooseFamilies is chooseVictims where no run of holes and leaves is long enough: it takes ancestors too,
// with all of their descendants, wherever these are.
func (s *Store) chooseFamilies(size int, held idSet) (ok bool) {
	if len(s.families.kin) == 0 {
		return false
	}
	s.victims, ok = s.pool.Cheapest(s.victims[:0], size, func(id uint32, owner any) (float64, bool) {
		s.counts.looked++
		if held.has(id) {
			return 0, false
		}
		return s.lossOfFamily(owner.(*Object))
	})
	if ok {
		s.victims = s.withDescendants(s.victims)
	}
	return ok
}

// withDescendants returns the ids of objects and of all of their descendants, children first.
func (s *Store) withDescendants(ids []uint32) []uint32 {
	s.families.walk++
	all := make([]uint32, 0, len(ids))
	for _, id := range ids {
		all = s.appendFamily(all, s.object(id))
	}
	return all
}
