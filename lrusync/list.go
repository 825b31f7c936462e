package lrusync

// The changes of an LRU, each announced to its observer before it is made.

func (l *LRU[V]) before(c change, n *node[V]) {
	if l.observe != nil {
		l.observe(c, n)
	}
}

func (l *LRU[V]) insert(n *node[V]) {
	l.before(inserted, n)
	n.linkBefore(&l.order)
	l.entries[n.key] = n
	l.size += n.size
}

func (l *LRU[V]) remove(n *node[V]) {
	l.before(removed, n)
	n.unlink()
	delete(l.entries, n.key)
	l.size -= n.size
	if l.options.OnRemove != nil {
		l.options.OnRemove(n.key, n.value)
	}
}

func (l *LRU[V]) bury(ghost *node[V]) {
	l.before(buried, ghost)
	ghost.unlink()
	delete(l.ghosts, ghost.key)
}

func (l *LRU[V]) moveToNewest(n *node[V]) {
	l.before(moved, n)
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
