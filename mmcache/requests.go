package mmcache

// requests are the requests of which something is open, in a list. A map would take a
// tenth of the time of a request whose items are cached.
type requests struct {
	first *Request
	n     int
}

func (l *requests) add(r *Request) {
	if l.first != nil {
		l.first.previous = r
	}
	r.next, l.first = l.first, r
	l.n++
}

// remove removes a request that was added.
func (l *requests) remove(r *Request) {
	if r.previous != nil {
		r.previous.next = r.next
	} else {
		l.first = r.next
	}
	if r.next != nil {
		r.next.previous = r.previous
	}
	r.next, r.previous = nil, nil
	l.n--
}

// all yields the requests. They must not change meanwhile.
func (l *requests) all(yield func(*Request) bool) {
	for r := l.first; r != nil; r = r.next {
		if !yield(r) {
			return
		}
	}
}
