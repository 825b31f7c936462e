package encoder

import "iter"

// list is the released items, in order. It is a ring through its own head.
type list struct{ head item }

// place is where an item is in a list, or nil.
type place struct{ before, after *item }

func (p *place) listed() bool { return p.after != nil }

func (l *list) init() { l.head.before, l.head.after = &l.head, &l.head }

// first returns the first item; there must be one.
func (l *list) first() *item { return l.head.after }

func (l *list) push(it *item) {
	it.before, it.after = l.head.before, &l.head
	it.before.after, it.after.before = it, it
}

func (l *list) remove(it *item) {
	it.before.after, it.after.before = it.after, it.before
	it.before, it.after = nil, nil
}

func (l *list) all() iter.Seq[*item] {
	return func(yield func(*item) bool) {
		for it := l.head.after; it != &l.head; it = it.after {
			if !yield(it) {
				return
			}
		}
	}
}
