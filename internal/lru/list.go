package lru

// Change is what happens to an entry.
type Change byte

// The digests of two processes contain the values of Inserted, Moved and Removed,
// which must not change.
const (
	Inserted Change = iota + 1
	Moved           // became the newest
	Removed
	replaced // value, size or pin
	haunted  // became a ghost
	buried   // was a ghost
)

// before announces a change that is about to be made.
func (l *Cache[V]) before(c Change, n *node[V]) {
	l.journal.add(c, n)
	if l.options.OnChange != nil && c <= Removed && !n.ghost {
		l.options.OnChange(c, n.key, n.size)
	}
}

func (l *Cache[V]) insert(n *node[V]) {
	l.before(Inserted, n)
	n.linkBefore(&l.order)
	l.entries[n.key] = n
	l.size += n.size
}

func (l *Cache[V]) remove(n *node[V]) {
	l.before(Removed, n)
	n.unlink()
	delete(l.entries, n.key)
	l.size -= n.size
	if l.options.OnRemove != nil {
		l.options.OnRemove(n.key, n.value)
	}
}

func (l *Cache[V]) bury(ghost *node[V]) {
	l.before(buried, ghost)
	ghost.unlink()
	delete(l.ghosts, ghost.key)
}

func (l *Cache[V]) moveToNewest(n *node[V]) {
	l.before(Moved, n)
	n.unlink()
	n.linkBefore(&l.order)
}

func (n *node[V]) unlink() {
	n.prev.next, n.next.prev = n.next, n.prev
}

func (n *node[V]) linkBefore(at *node[V]) {
	n.prev, n.next = at.prev, at
	n.prev.next, n.next.prev = n, n
}
