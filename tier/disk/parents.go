package disk

// link enters e, which has become present, among the leaves, the children and the parents. Only leaves are
// evicted, so a parent stays as long as one of its children.
func (x *index) link(e *entry) {
	x.objects++
	if x.children[e.id] == 0 {
		x.addLeaf(e)
	}
	if x.closesCycle(e) {
		e.parent = id{}
	}
	if e.parent != (id{}) {
		x.children[e.parent]++
		if p := x.entries[e.parent]; p != nil && x.leaves.Has(p) {
			x.removeLeaf(p)
		}
	}
}

// maxAncestors bounds the search under the lock. Chains of real objects are shorter.
const maxAncestors = 1 << 13

// closesCycle reports whether e, which is about to be linked, is an ancestor of its own parent: a cycle would
// have no leaf, and could never be evicted. If the parent has more than maxAncestors, e counts as one of
// them.
func (x *index) closesCycle(e *entry) bool {
	if x.children[e.id] == 0 {
		return false
	}
	steps := 0
	for p := e.parent; p != (id{}); {
		if steps++; p == e.id || steps > maxAncestors {
			return true
		}
		up := x.entries[p]
		if up == nil || up.state != present {
			return false // when that ancestor becomes present, its own link looks for the cycle
		}
		p = up.parent
	}
	return false
}

// unlink reverses link for e, which is about to be removed. Its parent may become a leaf.
func (x *index) unlink(e *entry) {
	x.objects--
	if x.leaves.Has(e) {
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
	x.leaves.Add(e)
	if e.tenant != nil {
		e.tenant.leaves.Add(e)
	}
}

func (x *index) removeLeaf(e *entry) {
	x.leaves.Remove(e)
	if e.tenant != nil {
		e.tenant.leaves.Remove(e)
	}
}
