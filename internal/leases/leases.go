// Package leases keeps what one request of a store has: the leases of package shmstore, and of the FIFO of
// package objstore.
package leases

import "iter"

// Lease is the use of one object by one request.
type Lease[O any] struct {
	Object *O
	Times  int   // the request took it
	Uses   int64 // that are counted for that
}

// Leases are what a request has. Most requests have a few objects, for which a map would be
// slower than a look at each, and garbage. The zero value has none. It must not be copied.
type Leases[O any] struct {
	list []Lease[O]
	few  [2]Lease[O]  // of which list is as long as they suffice
	at   map[*O]int32 // places in list; nil as long as there are few
}

// many is how many leases have a map.
const many = 16

// Of returns the lease of an object, nil if there is none. It is valid until leases come or go.
func (a *Leases[O]) Of(o *O) *Lease[O] {
	if a.at != nil {
		if i, ok := a.at[o]; ok {
			return &a.list[i]
		}
		return nil
	}
	for i := range a.list {
		if a.list[i].Object == o {
			return &a.list[i]
		}
	}
	return nil
}

// Add adds a lease of an object that has none, and returns it: it is valid until leases come or go.
func (a *Leases[O]) Add(o *O) *Lease[O] {
	if a.list == nil {
		a.list = a.few[:0]
	}
	a.list = append(a.list, Lease[O]{Object: o})
	switch n := len(a.list); {
	case a.at != nil:
		a.at[o] = int32(n - 1)
	case n == many:
		a.at = make(map[*O]int32, 2*n)
		for i := range a.list {
			a.at[a.list[i].Object] = int32(i)
		}
	}
	return &a.list[len(a.list)-1]
}

// Remove removes a lease that Of returned or All yielded.
func (a *Leases[O]) Remove(l *Lease[O]) {
	end := len(a.list) - 1
	if a.at != nil {
		i := a.at[l.Object]
		delete(a.at, l.Object)
		if int(i) != end {
			a.at[a.list[end].Object] = i
		}
	}
	*l = a.list[end]
	a.list[end] = Lease[O]{}
	a.list = a.list[:end]
}

// Clear removes all. The memory of a few leases stays for the next.
func (a *Leases[O]) Clear() {
	if a.at != nil {
		*a = Leases[O]{}
		return
	}
	clear(a.list)
	a.list = a.list[:0]
}

// All yields every lease. None may come or go meanwhile.
func (a *Leases[O]) All() iter.Seq[*Lease[O]] {
	return func(yield func(*Lease[O]) bool) {
		for i := range a.list {
			if !yield(&a.list[i]) {
				return
			}
		}
	}
}
