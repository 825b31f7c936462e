package main

import (
	"cmp"
	"slices"
)

// cache is one policy with its store. The program asks get for every use of an
// item and puts what was not there: a missed item is always admitted, since
// putting it in is also how it travels.
type cache interface {
	get(it *item) bool
	put(it *item)
}

// policy is the shape of evict.Policy, which the rivals that are a value per
// object share. E is what one keeps for an object.
type policy[E any] interface {
	Add(it *item) E
	Hit(e E)
	Evict(e E)
	Value(e E) float64
}

// scored keeps no bytes and has no placement: any free bytes will do. Its
// victims are those of the least value per byte, one after another.
type scored[E any] struct {
	policy   policy[E]
	capacity int64
	used     int64
	index    map[*item]int
	objects  []scoredObject[E]

	leased func(*item) bool // nil: none is, else not too many

	// The next victims, best first: values change with time, so no heap keeps
	// their order; a look at all objects finds the victims of a short while.
	next []victim
}

type scoredObject[E any] struct {
	it    *item
	entry E
}

type victim struct {
	it      *item
	density float64
}

// batch is the share of the objects that become victims before all are looked
// at again: of few objects one, which makes the choice exact.
const batch = 1.0 / 256

func newScored[E any](p policy[E], capacity int64) *scored[E] {
	return &scored[E]{policy: p, capacity: capacity, index: map[*item]int{}}
}

func (s *scored[E]) get(it *item) bool {
	i, ok := s.index[it]
	if ok {
		s.policy.Hit(s.objects[i].entry)
	}
	return ok
}

func (s *scored[E]) put(it *item) {
	if it.size > s.capacity {
		return
	}
	for s.used+it.size > s.capacity {
		s.evict()
	}
	s.used += it.size
	s.index[it] = len(s.objects)
	s.objects = append(s.objects, scoredObject[E]{it, s.policy.Add(it)})
}

func (s *scored[E]) density(o scoredObject[E]) float64 {
	return s.policy.Value(o.entry) / float64(o.it.size)
}

func (s *scored[E]) evict() {
	for {
		if len(s.next) == 0 {
			s.choose()
		}
		v := s.next[0]
		s.next = s.next[1:]
		i, ok := s.index[v.it]
		if !ok || s.density(s.objects[i]) > v.density*1.0001 || s.isLeased(v.it) {
			continue // it was used in the meantime
		}
		s.policy.Evict(s.objects[i].entry)
		s.used -= v.it.size
		last := len(s.objects) - 1
		s.objects[i] = s.objects[last]
		s.index[s.objects[i].it] = i
		s.objects[last] = scoredObject[E]{}
		s.objects = s.objects[:last]
		delete(s.index, v.it)
		return
	}
}

func (s *scored[E]) isLeased(it *item) bool { return s.leased != nil && s.leased(it) }

// choose keeps the least in a sorted slice: few change once it is full.
func (s *scored[E]) choose() {
	n := max(1, int(batch*float64(len(s.objects))))
	s.next = make([]victim, 0, n+1)
	for _, o := range s.objects {
		if s.isLeased(o.it) {
			continue
		}
		v := victim{o.it, s.density(o)}
		if len(s.next) == n && compareVictims(v, s.next[n-1]) > 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(s.next, v, compareVictims)
		s.next = slices.Insert(s.next, at, v)
		s.next = s.next[:min(n, len(s.next))]
	}
}

func compareVictims(a, b victim) int {
	return cmp.Or(cmp.Compare(a.density, b.density), cmp.Compare(a.it.id, b.it.id))
}
