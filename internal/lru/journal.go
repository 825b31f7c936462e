package lru

// Begin opens a transaction: [Cache.Rollback] takes back what happens from now on, and
// [Cache.Commit] keeps it.
func (l *Cache[V]) Begin() { l.journal.open = true }

// Commit ends the transaction.
func (l *Cache[V]) Commit() { l.journal.end() }

// Rollback ends the transaction, and with it all of its changes. Those of the
// statistics stay.
func (l *Cache[V]) Rollback() {
	l.journal.undo(l)
	l.checkInvariants()
}

// journal records the changes of a cache while a transaction is open, so that they
// can be taken back. A sender works out what its peer will do before the request
// is sent; if the request can't be sent, nothing must have happened.
type journal[V any] struct {
	open bool
	log  []record[V]
}

// record is a change and the node as it was before, its neighbours included.
// Changes are undone newest first, so that the neighbour which a node had then is
// the one that it gets back.
type record[V any] struct {
	change Change
	node   *node[V]
	was    node[V]
}

func (j *journal[V]) add(c Change, n *node[V]) {
	if j.open {
		j.log = append(j.log, record[V]{c, n, *n})
	}
}

func (j *journal[V]) end() {
	j.open = false
	clear(j.log) // the values are garbage now
	j.log = j.log[:0]
}

// undo takes back every recorded change of l.
func (j *journal[V]) undo(l *Cache[V]) {
	for i := len(j.log) - 1; i >= 0; i-- {
		r := &j.log[i]
		n := r.node
		switch r.change {
		case replaced:
			l.size += r.was.size - n.size
			n.value, n.size, n.pinned = r.was.value, r.was.size, r.was.pinned
		case Moved:
			n.unlink()
			n.linkBefore(r.was.prev.next)
		case Inserted:
			n.unlink()
			delete(l.entries, n.key)
			l.size -= n.size
		case Removed:
			n.linkBefore(r.was.prev.next)
			l.entries[n.key] = n
			l.size += n.size
		case haunted:
			n.unlink()
			delete(l.ghosts, n.key)
		case buried:
			n.linkBefore(r.was.prev.next)
			l.ghosts[n.key] = n
		}
	}
	j.end()
}

// Changes lists the keys that came, and that went, since the transaction began.
func (l *Cache[V]) Changes() (added, evicted []string) {
	seen := map[string]bool{}
	for _, r := range l.journal.log {
		if r.change != Inserted && r.change != Removed || seen[r.node.key] {
			continue
		}
		seen[r.node.key] = true // the first change shows what was before
		switch was, is := r.change == Removed, l.Has(r.node.key); {
		case is && !was:
			added = append(added, r.node.key)
		case was && !is:
			evicted = append(evicted, r.node.key)
		}
	}
	return added, evicted
}
