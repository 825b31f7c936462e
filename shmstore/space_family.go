package shmstore

import "iter"

// families are parents and children: an object whose key others name as their parent (Options.Parent)
// stays until they are gone, and while one of them is being stored. So what goes first is always a leaf.
//
// The children of a key are kept whether or not an object is there under the key: a child that comes
// without its parent is found when the parent comes. Each list counts how many of its children are busy,
// which are those that can't be evicted, together with those of whose own children some are busy. So
// whether an object may go is one look at a counter, and a change is passed on to the parent only if
// the parent's answer changes.
//
// Somebody may put objects that are each other's ancestors. The one that would close such a ring
// has no parent.
type families struct {
	parentOf func(key string, note []byte) string // Options.Parent; nil if no object has a parent
	index    map[string]*Object                   // of lifetime
	space    *space                               // which counts parents as of another class

	children map[string]*children // by the key of the parent
	walk     uint64               // number of the last walk
}

// children are those of one key. They exist as long as there are some.
type children struct {
	key    string
	parent *Object // committed under the key; nil if it is absent
	first  *Object
	n      int32 // that are committed or reserved
	busy   int32 // of them
}

// links are the place of an object in its family.
type links struct {
	children   *children // its own, if it is committed and has some
	among      *children // of which it is one; nil if it has no parent
	prev, next *Object   // in among
	busy       bool      // it is counted in among.busy
	walk       uint64    // the last one that came by, see families.walk
}

// busy reports whether an object of a class can't be evicted, and neither can its parent.
func (c class) busy() bool { return c >= classReserved && c <= classAncestor }

// reachable reports whether an object of a class can be evicted, perhaps after its children.
func (c class) reachable() bool { return c == classParent || c == classIdle }

// addChild makes an object that is about to be stored a child of its parent, which stays from now on.
func (f *families) addChild(o *Object) {
	if f.parentOf == nil {
		return
	}
	parent := f.parentOf(o.key, o.Note())
	if parent == "" || parent == o.key {
		return
	}
	c := f.children[parent]
	if c == nil {
		c = &children{key: parent, parent: f.index[parent]}
		f.children[parent] = c
		if c.parent != nil {
			c.parent.link().children = c
		}
	}
	l := o.link()
	l.among, l.busy, l.next = c, true, c.first
	if c.first != nil {
		c.first.links.prev = o
	}
	c.first = o
	c.n++
	c.busy++
	f.reclassify(c.parent)
}

func (o *Object) link() *links {
	if o.links == nil {
		o.links = new(links)
	}
	return o.links
}

// removeChild takes an object away from its parent.
func (f *families) removeChild(o *Object) {
	if o.links == nil || o.links.among == nil {
		return
	}
	l := o.links
	c := l.among
	if l.prev != nil {
		l.prev.links.next = l.next
	} else {
		c.first = l.next
	}
	if l.next != nil {
		l.next.links.prev = l.prev
	}
	c.n--
	if l.busy {
		c.busy--
	}
	l.among, l.prev, l.next, l.busy = nil, nil, nil, false
	if c.n == 0 {
		delete(f.children, c.key)
		if c.parent != nil {
			c.parent.links.children = nil
			c.parent.unlink()
		}
	}
	f.reclassify(c.parent)
	o.unlink()
}

// addParent makes an object that is committed the parent of the children that came before it.
func (f *families) addParent(o *Object) {
	c := f.children[o.key]
	if c == nil {
		return
	}
	may := c.mayHaveAncestors()
	for p := o.parent(); p != nil && may; p = p.parent() {
		if c.has(p) {
			o.noParent = true
			f.removeChild(o)
			break
		}
	}
	c.key, c.parent = o.key, o // of one string, as the index has it
	f.children[o.key] = c
	o.link().children = c
}

// mayHaveAncestors reports whether one of the children may be an ancestor of another object: no, if they are few and have
// no children. A chain that is committed from its root on is not walked for each of its objects that way.
func (c *children) mayHaveAncestors() bool {
	n := 0
	for o := c.first; o != nil; o = o.links.next {
		if n++; o.hasChildren() || n > 8 {
			return true
		}
	}
	return false
}

// has reports whether an object is one of the children.
func (c *children) has(o *Object) bool { return o.links != nil && o.links.among == c }

// remove takes an object away from its parent, and leaves its children without one.
func (f *families) remove(o *Object) {
	if o.hasChildren() {
		o.links.children.parent = nil
		o.links.children = nil
		o.unlink()
	}
	f.removeChild(o)
}

// unlink frees the links of an object that has neither a parent nor children.
func (o *Object) unlink() {
	if o.links.children == nil && o.links.among == nil {
		o.links = nil
	}
}

// parent returns the parent of an object, nil if it has none or it is absent.
func (o *Object) parent() *Object {
	if o.links == nil || o.links.among == nil {
		return nil
	}
	return o.links.among.parent
}

// hasChildren reports whether a child of an object is there.
func (o *Object) hasChildren() bool { return o.links != nil && o.links.children != nil }

// reclassify counts a parent, if there is one, as of the class that it is in now.
func (f *families) reclassify(o *Object) {
	if o != nil && o.class != classNone {
		f.space.reclassify(o)
	}
}

// passOn passes on to the ancestors of an object that it is of another class now.
func (f *families) passOn(o *Object) {
	for o != nil && o.links != nil && o.links.among != nil {
		busy := o.class.busy()
		if busy == o.links.busy {
			return
		}
		o.links.busy = busy
		c := o.links.among
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
			f.addChild(o)
			f.passOn(o)
		}
	}
	f.index = index
	before := f.walk
	for o := range all {
		f.walk++
		// Up to where an earlier walk went on.
		for x := o; x != nil && x.links != nil && x.links.walk <= before; {
			x.links.walk = f.walk
			p := f.index[x.links.among.key]
			if p != nil && p.links != nil && p.links.walk == f.walk {
				x.noParent = true
				f.removeChild(x)
				break
			}
			x = p
		}
	}
	for key, c := range f.children {
		if o := f.index[key]; o != nil {
			c.parent = o
			o.link().children = c
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
		return o.links.children.first
	}
	for o != top {
		if o.links.next != nil {
			return o.links.next
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
			if c := f.unvisited(o.links.children.first); c != nil {
				o = c
				continue
			}
		}
		ids = append(ids, o.chunk.ID)
		if o == top {
			return ids
		}
		if c := f.unvisited(o.links.next); c != nil {
			o = c
		} else {
			o = o.parent()
		}
	}
}

// unvisited returns the first of an object and its later siblings that this walk has not been at,
// and marks it.
func (f *families) unvisited(o *Object) *Object {
	for ; o != nil; o = o.links.next {
		if f.firstVisit(o) {
			return o
		}
	}
	return nil
}

func (f *families) firstVisit(o *Object) bool {
	if o.links == nil {
		return true
	}
	first := o.links.walk != f.walk
	o.links.walk = f.walk
	return first
}

// chooseFamilies is chooseVictims where no run of holes and leaves is long enough: it takes ancestors too,
// with all of their descendants, wherever these are.
func (s *space) chooseFamilies(size int, held idSet) (ok bool) {
	if len(s.families.children) == 0 {
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
