package lrusync

// Changes of the LRU's state, and how they are taken back. A sender works out
// what its peer will do before it sends; if the request can't be sent, nothing
// must have happened.

// undo is one change and what it takes to undo it. Changes are undone newest
// first, so that the neighbour a node had then is the one it gets back.
type undo[V any] struct {
	kind  undoKind
	node  *node[V]
	prev  *node[V] // where the node was
	was   node[V]  // value, size and pinned, for undoSet
	stats Stats
}

type undoKind uint8

const (
	undoSet    undoKind = iota // value, size or pinned changed
	undoMove                   // moved to the newest end
	undoInsert                 // became an entry
	undoRemove                 // was an entry
	undoGhost                  // became a ghost
	undoBury                   // was a ghost
	undoStats                  // queries were counted
)

func (l *LRU[V]) record(k undoKind, n *node[V]) {
	if !l.tx {
		return
	}
	u := undo[V]{kind: k, node: n, stats: l.stats}
	if n != nil {
		u.prev = n.prev
		if k == undoSet {
			u.was = *n
		}
	}
	l.log = append(l.log, u)
}

// change is what happened to an entry.
type change byte

const (
	changeInsert change = iota + 1
	changeMove          // became the newest, perhaps with another size
	changeRemove
)

func (l *LRU[V]) tell(c change, n *node[V]) {
	if l.trace != nil {
		l.trace(c, n.key, n.size)
	}
}

func (l *LRU[V]) insert(n *node[V]) {
	n.linkBefore(&l.order)
	l.entries[n.key] = n
	l.size += n.size
	l.record(undoInsert, n)
	l.tell(changeInsert, n)
}

func (l *LRU[V]) remove(n *node[V]) {
	l.record(undoRemove, n)
	n.unlink()
	delete(l.entries, n.key)
	l.size -= n.size
	l.tell(changeRemove, n)
	if !l.tx && l.o.OnRemove != nil {
		l.o.OnRemove(n.key, n.value)
	}
}

func (l *LRU[V]) removeGhost(n *node[V]) {
	l.record(undoBury, n)
	n.unlink()
	delete(l.ghosts, n.key)
}

func (l *LRU[V]) toNewest(n *node[V]) {
	l.record(undoMove, n)
	n.unlink()
	n.linkBefore(&l.order)
	if !n.ghost {
		l.tell(changeMove, n)
	}
}

// begin starts a transaction: from now on changes can be taken back.
func (l *LRU[V]) begin() {
	l.tx = true
	l.record(undoStats, nil)
}

// changes lists the keys that came, and that went, since begin.
func (l *LRU[V]) changes() (added, removed []string) {
	seen := map[string]bool{}
	for _, u := range l.log {
		if u.kind != undoInsert && u.kind != undoRemove || seen[u.node.key] {
			continue
		}
		seen[u.node.key] = true // the first change tells what was before
		switch had, has := u.kind == undoRemove, l.Has(u.node.key); {
		case has && !had:
			added = append(added, u.node.key)
		case had && !has:
			removed = append(removed, u.node.key)
		}
	}
	return added, removed
}

// commit makes the changes since begin final and reports what was removed.
func (l *LRU[V]) commit() {
	l.tx = false
	for _, u := range l.log {
		if u.kind == undoRemove && l.o.OnRemove != nil {
			l.o.OnRemove(u.node.key, u.node.value)
		}
	}
	l.forgetLog()
}

// rollback takes back every change since begin.
func (l *LRU[V]) rollback() {
	l.tx = false
	for i := len(l.log) - 1; i >= 0; i-- {
		u := &l.log[i]
		n := u.node
		switch u.kind {
		case undoSet:
			l.size += u.was.size - n.size
			n.value, n.size, n.pinned = u.was.value, u.was.size, u.was.pinned
		case undoMove:
			n.unlink()
			n.linkBefore(u.prev.next)
		case undoInsert:
			n.unlink()
			delete(l.entries, n.key)
			l.size -= n.size
		case undoRemove:
			n.linkBefore(u.prev.next)
			l.entries[n.key] = n
			l.size += n.size
		case undoGhost:
			n.unlink()
			delete(l.ghosts, n.key)
		case undoBury:
			n.linkBefore(u.prev.next)
			l.ghosts[n.key] = n
		case undoStats:
			l.stats = u.stats
		}
	}
	l.forgetLog()
}

func (l *LRU[V]) forgetLog() {
	clear(l.log) // don't keep values alive
	l.log = l.log[:0]
}

func (n *node[V]) unlink() {
	n.prev.next, n.next.prev = n.next, n.prev
}

func (n *node[V]) linkBefore(at *node[V]) {
	n.prev, n.next = at.prev, at
	n.prev.next, n.next.prev = n, n
}
