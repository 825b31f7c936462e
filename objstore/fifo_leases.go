package objstore

import "iter"

// fifoLease is the use of one object by one request.
type fifoLease struct {
	times int   // the request took it
	uses  int64 // that were counted for that
}

// fifoLeases are what a request has. Most requests have one object, for which a map would
// be garbage. The zero value has none.
type fifoLeases struct {
	first *fifoObject // nil: none, or all are in more
	lease fifoLease   // of first
	more  map[*fifoObject]fifoLease
}

func (a *fifoLeases) of(o *fifoObject) (l fifoLease, ok bool) {
	if o != nil && o == a.first {
		return a.lease, true
	}
	l, ok = a.more[o]
	return l, ok
}

func (a *fifoLeases) set(o *fifoObject, l fifoLease) {
	switch {
	case o == a.first, a.first == nil && len(a.more) == 0:
		a.first, a.lease = o, l
	default:
		if a.more == nil {
			a.more = map[*fifoObject]fifoLease{}
		}
		a.more[o] = l
	}
}

func (a *fifoLeases) remove(o *fifoObject) {
	if o == a.first {
		a.first = nil
	}
	delete(a.more, o)
}

// all yields every lease. The one that was yielded may be removed meanwhile.
func (a *fifoLeases) all() iter.Seq2[*fifoObject, fifoLease] {
	return func(yield func(*fifoObject, fifoLease) bool) {
		if a.first != nil && !yield(a.first, a.lease) {
			return
		}
		for o, l := range a.more {
			if !yield(o, l) {
				return
			}
		}
	}
}
