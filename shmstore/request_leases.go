package shmstore

import "iter"

// lease is the use of one object by one request.
type lease struct {
	o     *Object
	times int   // the request took it, as it was said to PayloadOwner.Use
	uses  int64 // that the owner counts for that
}

// leases are what a request has. Most requests have a few objects, for which a map would be
// slower than a look at each, and garbage. The zero value has none.
type leases struct {
	list []lease
	few  [2]lease          // of which list is as long as they suffice
	at   map[*Object]int32 // places in list; nil as long as there are few
}

// manyLeases is how many leases have a map.
const manyLeases = 16

// of returns the lease of an object, nil if there is none. It is valid until leases come or go.
func (a *leases) of(o *Object) *lease {
	if a.at != nil {
		if i, ok := a.at[o]; ok {
			return &a.list[i]
		}
		return nil
	}
	for i := range a.list {
		if a.list[i].o == o {
			return &a.list[i]
		}
	}
	return nil
}

// ofKey returns a lease of an object that was put under a key, nil if there is none.
func (a *leases) ofKey(key string) *lease {
	for i := range a.list {
		if a.list[i].o.key == key {
			return &a.list[i]
		}
	}
	return nil
}

// add adds a lease of an object that has none.
func (a *leases) add(o *Object) {
	if a.list == nil {
		a.list = a.few[:0]
	}
	a.list = append(a.list, lease{o: o})
	switch n := len(a.list); {
	case a.at != nil:
		a.at[o] = int32(n - 1)
	case n == manyLeases:
		a.at = make(map[*Object]int32, 2*n)
		for i := range a.list {
			a.at[a.list[i].o] = int32(i)
		}
	}
}

// remove removes a lease that of or ofKey returned.
func (a *leases) remove(l *lease) {
	end := len(a.list) - 1
	if a.at != nil {
		i := a.at[l.o]
		delete(a.at, l.o)
		if int(i) != end {
			a.at[a.list[end].o] = i
		}
	}
	*l = a.list[end]
	a.list[end] = lease{}
	a.list = a.list[:end]
}

// clear removes all. The memory of a few leases stays for the next.
func (a *leases) clear() {
	if a.at != nil {
		*a = leases{}
		return
	}
	clear(a.list)
	a.list = a.list[:0]
}

// all yields every lease. None may come or go meanwhile.
func (a *leases) all() iter.Seq[*lease] {
	return func(yield func(*lease) bool) {
		for i := range a.list {
			if !yield(&a.list[i]) {
				return
			}
		}
	}
}
