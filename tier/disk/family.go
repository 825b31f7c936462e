package disk

// link enters e, which is present, into its family.
func (x *index) link(e *entry) {
	x.objects++
	e.leaf = -1
	if x.children[e.id] == 0 {
		x.addLeaf(e)
	}
	if x.closesRing(e) {
		e.parent = id{}
	}
	if e.parent != (id{}) {
		x.children[e.parent]++
		if p := x.entries[e.parent]; p != nil && p.leaf >= 0 {
			x.removeLeaf(p)
		}
	}
}

// mostAncestors bounds what is looked at under the lock. Nobody has chains of so many.
const mostAncestors = 1 << 13

// closesRing reports whether e, which is about to be linked, is an ancestor of its parent. Without children it
// is not. If the parent has more than mostAncestors, e counts as one of them, and gets no parent.
func (x *index) closesRing(e *entry) bool {
	if x.children[e.id] == 0 {
		return false
	}
	steps := 0
	for p := e.parent; p != (id{}); {
		if steps++; p == e.id || steps > mostAncestors {
			return true
		}
		up := x.entries[p]
		if up == nil || up.state != present {
			return false // if it comes, it is looked at then
		}
		p = up.parent
	}
	return false
}

func (x *index) unlink(e *entry) {
	x.objects--
	if e.leaf >= 0 {
		x.removeLeaf(e)
	}
	if e.parent == (id{}) {
		return
	}
	if x.children[e.parent]--; x.children[e.parent] > 0 {
		return
	}
	delete(x.children, e.parent)
	if p := x.entries[e.parent]; p != nil && p.state == present {
		x.addLeaf(p)
	}
}

func (x *index) addLeaf(e *entry) {
	e.leaf = int32(len(x.leaves))
	x.leaves = append(x.leaves, e)
}

func (x *index) removeLeaf(e *entry) {
	last := x.leaves[len(x.leaves)-1]
	x.leaves[e.leaf], last.leaf = last, e.leaf
	x.leaves[len(x.leaves)-1] = nil
	x.leaves = x.leaves[:len(x.leaves)-1]
	e.leaf = -1
}
