package policy

import (
	"cmp"
	"math"
	"slices"
)

// Cache is one policy with its store. The program asks Get for every use of an
// item and puts what was not there: a missed item is always admitted, since
// putting it in is also how it travels.
type Cache interface {
	Get(it *Item) bool
	Put(it *Item)
}

// Rule is a value per object, in the shape of evict.Policy. E is what the rule keeps for an object.
type Rule[E any] interface {
	Add(it *Item) E
	Hit(e E)
	Evict(e E)
	Value(e E) float64
}

// Scored keeps no bytes and has no placement: any free bytes will do. Its
// victims are those of the least value per byte, one after another. What has children in
// the cache is no victim, nor are the ancestors of what is being put.
type Scored[E any] struct {
	// Held, if not nil, reports what must not go now. What then finds no room is not stored.
	Held func(*Item) bool
	// Exact looks at all leaves for each victim, and not only now and then.
	Exact bool
	// Admit, if positive, is how many times its own value by the byte an object may cost others: what is worth more
	// stays, and the object is not stored.
	Admit float64

	rule     Rule[E]
	capacity int64
	used     int64
	index    map[*Item]int
	objects  []object[E]
	leaves   []*Item // without children in the cache

	// The next victims, best first: values change with time, so no heap keeps
	// their order; a look at all objects finds the victims of a short while.
	next []victim
}

type object[E any] struct {
	it       *Item
	entry    E
	children int // in the cache
	leaf     int // place among the leaves, or -1
}

type victim struct {
	it      *Item
	density float64
}

// batch is the share of the objects that become victims before all are looked
// at again: of few objects one, which makes the choice exact.
const batch = 1.0 / 256

// NewScored makes an empty cache of so many bytes.
func NewScored[E any](r Rule[E], capacity int64) *Scored[E] {
	return &Scored[E]{rule: r, capacity: capacity, index: map[*Item]int{}}
}

// Used returns the bytes of the items in the cache.
func (s *Scored[E]) Used() int64 { return s.used }

// Has reports whether an item is in the cache. That is no use.
func (s *Scored[E]) Has(it *Item) bool {
	_, ok := s.index[it]
	return ok
}

// Get uses an item, and reports whether it is there.
func (s *Scored[E]) Get(it *Item) bool {
	i, ok := s.index[it]
	if ok {
		s.rule.Hit(s.objects[i].entry)
	}
	return ok
}

// Put stores an item that is not there, but not without its parent, nor if nothing may go for it.
func (s *Scored[E]) Put(it *Item) {
	if it.Size > s.capacity || it.Parent != nil && !s.Has(it.Parent) {
		return
	}
	s.adopt(it.Parent, 1) // the parent stays, and so do all above it
	o, most := object[E]{it: it}, math.Inf(1)
	if s.Admit > 0 {
		o.entry = s.rule.Add(it)
		most = s.Admit * s.density(o)
	}
	for s.used+it.Size > s.capacity {
		if !s.evict(most) {
			s.adopt(it.Parent, -1)
			if s.Admit > 0 {
				s.rule.Evict(o.entry) // it is remembered as if it had been there
			}
			return
		}
	}
	if s.Admit == 0 {
		o.entry = s.rule.Add(it)
	}
	s.used += it.Size
	s.index[it] = len(s.objects)
	s.objects = append(s.objects, o)
	s.addLeaf(it)
}

func (s *Scored[E]) adopt(parent *Item, n int) {
	if parent == nil {
		return
	}
	o := &s.objects[s.index[parent]]
	o.children += n
	if o.children == 0 {
		s.addLeaf(parent)
	} else if o.leaf >= 0 {
		s.removeLeaf(o)
	}
}

func (s *Scored[E]) addLeaf(it *Item) {
	s.objects[s.index[it]].leaf = len(s.leaves)
	s.leaves = append(s.leaves, it)
}

func (s *Scored[E]) removeLeaf(o *object[E]) {
	last := s.leaves[len(s.leaves)-1]
	s.leaves[o.leaf] = last
	s.objects[s.index[last]].leaf = o.leaf
	s.leaves = s.leaves[:len(s.leaves)-1]
	o.leaf = -1
}

func (s *Scored[E]) density(o object[E]) float64 {
	return s.rule.Value(o.entry) / float64(o.it.Size)
}

// evict reports whether there was a victim of at most a density.
func (s *Scored[E]) evict(most float64) bool {
	for {
		if len(s.next) == 0 {
			if s.choose(); len(s.next) == 0 {
				return false
			}
		}
		v := s.next[0]
		if v.density > most {
			s.next = nil // values will be others by the next time
			return false
		}
		s.next = s.next[1:]
		i, ok := s.index[v.it]
		if !ok || s.density(s.objects[i]) > v.density+1e-4*math.Abs(v.density) || !s.mayGo(s.objects[i]) {
			continue // it was used in the meantime
		}
		s.rule.Evict(s.objects[i].entry)
		s.removeLeaf(&s.objects[i])
		s.adopt(v.it.Parent, -1)
		s.used -= v.it.Size
		last := len(s.objects) - 1
		s.objects[i] = s.objects[last]
		s.index[s.objects[i].it] = i
		s.objects[last] = object[E]{}
		s.objects = s.objects[:last]
		delete(s.index, v.it)
		return true
	}
}

func (s *Scored[E]) mayGo(o object[E]) bool {
	return o.children == 0 && (s.Held == nil || !s.Held(o.it))
}

// choose keeps the least in a sorted slice: few change once it is full.
func (s *Scored[E]) choose() {
	n := 1
	if !s.Exact {
		n = max(1, int(batch*float64(len(s.objects))))
	}
	s.next = make([]victim, 0, n+1)
	for _, it := range s.leaves {
		o := s.objects[s.index[it]]
		if !s.mayGo(o) {
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
	return cmp.Or(cmp.Compare(a.density, b.density), cmp.Compare(a.it.ID, b.it.ID))
}
