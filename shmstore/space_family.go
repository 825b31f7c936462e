package shmstore

import "iter"

// families are parents and children: an object whose key others name as their parent (Options.Parent)
// stays until they are gone, and while one of them is being stored. So what goes first is always a leaf.
//
// An object has the list of its children. Where no object is there under the key of a parent, the list is
// among the orphans, by that key, until the parent comes. Each list counts how many of its children are busy,
// which are those that can't be evicted, together with those of whose own children some are busy. So
// whether an object may go is one look at a counter, and a change is passed on to the parent only if
// the parent's answer changes.
//
// Somebody may put objects that are each other's ancestors. The one that would close such a ring
// has no parent.
type families struct {
	parentOf func(key string, note []byte) string // Options.Parent; nil if no object has a parent
	index    *index                               // of lifetime
	space    *space                               // which counts parents as of another class

	orphans map[string]*children // those of absent parents, by the key of the parent
	n       int                  // objects that are children
	walk    uint64               // number of the last walk
}

// children are those of one key, committed or reserved. They exist as long as there are some.
type children struct {
	parent *Object // committed under the key; nil if it is absent
	first  *Object
	busy   int32 // how many are
}

// links are the place of an object in its family. In a store whose objects may have parents each object has
// them, in one allocation with its texts.
type links struct {
	children   *children // its own, if it is committed and has some
	among      *children // of which it is one; nil if it has no parent
	prev, next *Object   // in among
	walk       uint64    // the last one that came by, see families.walk
}

// parentKey returns the key of the parent of an object with a key. It is empty if the object has none.
func (f *families) parentKey(o *Object, key string) string {
	if f.parentOf == nil || o.noParent {
		return ""
	}
	if parent := f.parentOf(key, o.Note()); parent != key {
		return parent
	}
	return ""
}

// busy reports whether an object of a class can't be evicted, and neither can its parent.
func (c class) busy() bool { return c >= classReserved && c <= classAncestor }

// reachable reports whether an object of a class can be evicted, perhaps after its children.
func (c class) reachable() bool { return c == classParent || c == classIdle }

// addChild makes an object that is about to be stored a child of its parent, which stays from now on.
func (f *families) addChild(o *Object, own string) {
	key := f.parentKey(o, own)
	if key == "" {
		return
	}
	parent := f.index.find(key)
	var c *children
	if parent != nil {
		c = parent.links().children
	} else {
		c = f.orphans[key]
	}
	if c == nil {
		c = &children{parent: parent}
		if parent != nil {
			parent.links().children = c
		} else {
			f.orphans[key] = c
		}
	}
	l := o.links()
	l.among, l.next = c, c.first
	if c.first != nil {
		c.first.links().prev = o
	}
	c.first = o
	f.n++
	o.busy = true
	c.busy++
	f.reclassify(c.parent)
}

// removeChild takes an object away from its parent.
func (f *families) removeChild(o *Object) {
	if !o.hasParent() {
		return
	}
	l := o.links()
	c := l.among
	if l.prev != nil {
		l.prev.links().next = l.next
	} else {
		c.first = l.next
	}
	if l.next != nil {
		l.next.links().prev = l.prev
	}
	f.n--
	if o.busy {
		o.busy = false
		c.busy--
	}
	l.among, l.prev, l.next = nil, nil, nil
	if c.first != nil {
		f.reclassify(c.parent)
		return
	}
	if c.parent == nil {
		delete(f.orphans, f.parentKey(o, o.Key()))
		return
	}
	c.parent.links().children = nil
	f.reclassify(c.parent)
}

// addParent makes an object that is committed the parent of the children that came before it.
func (f *families) addParent(o *Object) {
	if len(f.orphans) == 0 {
		return
	}
	key := o.Key()
	c := f.orphans[key]
	if c == nil {
		return
	}
	may := c.mayHaveAncestors()
	for p := o.parent(); p != nil && may; p = p.parent() {
		if c.has(p) {
			f.removeChild(o)
			o.noParent = true
			break
		}
	}
	delete(f.orphans, key)
	c.parent, o.links().children = o, c
}

// mayHaveAncestors reports whether one of the children may be an ancestor of another object: no, if they are few and have
// no children. A chain that is committed from its root on is not walked for each of its objects that way.
func (c *children) mayHaveAncestors() bool {
	n := 0
	for o := c.first; o != nil; o = o.links().next {
		if n++; o.hasChildren() || n > 8 {
			return true
		}
	}
	return false
}

// has reports whether an object is one of the children.
func (c *children) has(o *Object) bool { return o.links() != nil && o.links().among == c }

// remove takes an object away from its parent, and leaves its children without one.
func (f *families) remove(o *Object) {
	if o.hasChildren() {
		c := o.links().children
		c.parent, o.links().children = nil, nil
		f.orphans[o.Key()] = c
	}
	f.removeChild(o)
}

// parent returns the parent of an object, nil if it has none or it is absent.
func (o *Object) parent() *Object {
	if !o.hasParent() {
		return nil
	}
	return o.links().among.parent
}

// hasParent reports whether an object is the child of another one, which may be absent.
func (o *Object) hasParent() bool { return o.links() != nil && o.links().among != nil }

// hasChildren reports whether a child of an object is there.
func (o *Object) hasChildren() bool { return o.links() != nil && o.links().children != nil }

// reclassify counts a parent, if there is one, as of the class that it is in now.
func (f *families) reclassify(o *Object) {
	if o != nil && o.class != classNone {
		f.space.reclassify(o)
	}
}

// passOn passes on to the ancestors of an object that it is of another class now.
func (f *families) passOn(o *Object) {
	for o != nil && o.hasParent() {
		busy := o.class.busy()
		if busy == o.busy {
			return
		}
		o.busy = busy
		c := o.links().among
		if busy {
			c.busy++
		} else {
			c.busy--
		}
		if o = c.parent; o == nil || classOf(o) == o.class {
			return
		}
		f.space.setOwnClass(o, classOf(o))
	}
}

// rebuild finds the parents and children of all objects, which were adopted.
func (f *families) rebuild(all iter.Seq[*Object]) {
	if f.parentOf == nil {
		return
	}
	index := f.index
	f.index = nil // so that nobody has a parent until those in a ring are known
	for o := range all {
		if o.state == committed || o.state == reserved {
			f.addChild(o, o.Key())
			f.passOn(o)
		}
	}
	before := f.walk
	for o := range all {
		f.walk++
		// Up to where an earlier walk went on.
		for x := o; x != nil && x.hasParent() && x.links().walk <= before; {
			x.links().walk = f.walk
			p := index.find(f.parentKey(x, x.Key()))
			if p != nil && p.links().walk == f.walk {
				f.removeChild(x)
				x.noParent = true
				break
			}
			x = p
		}
	}
	f.index = index
	for key, c := range f.orphans {
		if o := index.find(key); o != nil {
			delete(f.orphans, key)
			c.parent, o.links().children = o, c
			f.reclassify(o)
		}
	}
}

// maxDescendants bounds what a search looks at of the descendants of one object.
const maxDescendants = 16

// lossOfFamily returns about what evicting an object and its descendants loses, and whether they
// may be evicted.
func (s *space) lossOfFamily(o *Object) (sum float64, may bool) {
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
		return o.links().children.first
	}
	for o != top {
		if o.links().next != nil {
			return o.links().next
		}
		o = o.parent()
	}
	return nil
}

// appendFamily appends the ids of an object and its descendants, each behind its children, but
// for those that this walk has been at.
func (f *families) appendFamily(ids []uint32, top *Object) []uint32 {
	if !f.firstVisit(top) {
		return ids
	}
	o := top
	for {
		// Down to the first child that was not visited.
		if o.hasChildren() {
			if c := f.unvisited(o.links().children.first); c != nil {
				o = c
				continue
			}
		}
		ids = append(ids, o.chunk.id)
		if o == top {
			return ids
		}
		if c := f.unvisited(o.links().next); c != nil {
			o = c
		} else {
			o = o.parent()
		}
	}
}

// unvisited returns the first of an object and its later siblings that this walk has not been at,
// and marks it.
func (f *families) unvisited(o *Object) *Object {
	for ; o != nil; o = o.links().next {
		if f.firstVisit(o) {
			return o
		}
	}
	return nil
}

func (f *families) firstVisit(o *Object) bool {
	if o.links() == nil {
		return true
	}
	first := o.links().walk != f.walk
	o.links().walk = f.walk
	return first
}

// chooseFamilies is chooseVictims where no run of holes and leaves is long enough: it takes ancestors too,
// with all of their descendants, wherever these are.
func (s *space) chooseFamilies(size int, held idSet) (ok bool) {
	if s.families.n == 0 {
		return false
	}
	s.victims, ok = s.pool.Cheapest(s.victims[:0], size, func(id uint32, owner any) (float64, bool) {
		s.looked++
		if held.has(id) {
			return 0, false
		}
		return s.lossOfFamily(owner.(*Object))
	})
	if ok {
		s.victims = s.families.withDescendants(s.victims)
	}
	return ok
}

// withDescendants returns the ids of objects and of all of their descendants, children first.
func (f *families) withDescendants(ids []uint32) []uint32 {
	f.walk++
	all := make([]uint32, 0, len(ids))
	for _, id := range ids {
		all = f.appendFamily(all, f.space.object(id))
	}
	return all
}
