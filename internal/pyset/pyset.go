// Package pyset is a set of small integers that is iterated in the order of CPython's.
//
// CPython promises no order of a set, and yet programs have one: an integer's hash is the integer
// itself, so its place in the table follows from its value, the size of the table, and what was there
// before. vLLM frees the inputs of a request in the order of such a set, and what is freed first is
// evicted first. So the order of {1, 8} matters to whoever wants to evict the same: it is 8, 1.
//
// The rules are those of Objects/setobject.c in CPython 3.10 to 3.13, whose orders were compared:
//
//   - The table has 8 places at first, and always a power of two.
//   - The search for a place begins at the value modulo the size. It looks at the nine places behind
//     that too, if the table has as many, and then jumps.
//   - What is removed leaves a mark, and its place counts as taken until the table is made anew. Of
//     the marks on the way to an unused place, what is added takes the last.
//   - When three fifths of the table are taken, it is made anew, with the first power of two above
//     four times the number of members (two times, above 50,000). Members move in the order of
//     their places.
//   - A copy has a table of its own size: the first power of two above twice the number of members,
//     or 8 if they take less than three fifths of that.
package pyset

import (
	"fmt"
	"iter"
)

const (
	unused  = -1 // a place that nothing was in since the table was made
	removed = -2 // a place whose member was removed

	minSize  = 8
	linear   = 9 // places that are looked at behind the first, before a jump
	shift    = 5 // bits of the value that go into each further jump
	largeSet = 50_000
)

// Set is a set of integers of at least 0. The zero value is empty. It is not safe for
// concurrent use.
type Set struct {
	table []int // nil, or a power of two of places
	taken int   // places that are not unused
	used  int   // members
}

// Len returns the number of members.
func (s *Set) Len() int { return s.used }

// All returns the members in the order of CPython. The set must not change meanwhile.
func (s *Set) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for _, v := range s.table {
			if v >= 0 && !yield(v) {
				return
			}
		}
	}
}

// Has reports whether v is a member.
func (s *Set) Has(v int) bool {
	_, ok := s.find(v)
	return ok
}

// Add makes v, of at least 0, a member.
func (s *Set) Add(v int) {
	if v < 0 {
		panic(fmt.Sprintf("pyset: %d is negative", v))
	}
	if s.table == nil {
		s.table = newTable(minSize)
	}
	at, ok := s.find(v)
	if ok {
		return
	}
	s.used++
	if s.table[at] == removed {
		s.table[at] = v
		return
	}
	s.table[at] = v
	s.taken++
	if !full(s.taken, len(s.table)) {
		return
	}
	if s.used > largeSet {
		s.resize(2 * s.used)
	} else {
		s.resize(4 * s.used)
	}
}

// Remove makes v no member.
func (s *Set) Remove(v int) {
	if at, ok := s.find(v); ok {
		s.table[at] = removed
		s.used--
	}
}

// Copy returns a set with the same members, as the method copy of CPython's does.
func (s *Set) Copy() Set {
	if s.used == 0 {
		return Set{}
	}
	size := minSize
	if full(s.used, size) {
		size = sizeAbove(2 * s.used)
	}
	c := Set{table: newTable(size), taken: s.used, used: s.used}
	if size == len(s.table) && s.taken == s.used {
		copy(c.table, s.table)
		return c
	}
	for v := range s.All() {
		c.place(v)
	}
	return c
}

// full reports whether so many taken places of a table call for a larger one.
func full(taken, size int) bool { return taken*5 >= (size-1)*3 }

func sizeAbove(n int) int {
	size := minSize
	for size <= n {
		size *= 2
	}
	return size
}

func newTable(size int) []int {
	t := make([]int, size)
	for i := range t {
		t[i] = unused
	}
	return t
}

// resize moves the members into a table of more than n places.
func (s *Set) resize(n int) {
	old := s.table
	s.table, s.taken = newTable(sizeAbove(n)), s.used
	for _, v := range old {
		if v >= 0 {
			s.place(v)
		}
	}
}

// place puts v, which is no member, into a table without marks.
func (s *Set) place(v int) {
	at, _ := s.find(v)
	s.table[at] = v
}

// find returns the place of v, or the one that it would take.
func (s *Set) find(v int) (at int, ok bool) {
	if s.table == nil || v < 0 {
		return 0, false
	}
	mask := uint(len(s.table) - 1)
	first, rest := uint(v)&mask, uint(v)
	mark := -1
	for {
		last := first
		if first+linear <= mask {
			last = first + linear
		}
		for i := first; i <= last; i++ {
			switch s.table[i] {
			case v:
				return int(i), true
			case removed:
				mark = int(i)
			case unused:
				if mark >= 0 {
					return mark, false
				}
				return int(i), false
			}
		}
		rest >>= shift
		first = (first*5 + 1 + rest) & mask
	}
}

// Check reports what is wrong with the set's memory.
func (s *Set) Check() error {
	used, taken := 0, 0
	for i, v := range s.table {
		if v != unused {
			taken++
		}
		if v < 0 {
			continue
		}
		used++
		if at, ok := s.find(v); !ok || at != i {
			return fmt.Errorf("pyset: %d is at %d, and a search ends at %d", v, i, at)
		}
	}
	if used != s.used || taken != s.taken || s.table != nil && full(taken, len(s.table)) {
		return fmt.Errorf("pyset: %d members and %d places taken of %d, counted %d and %d",
			used, taken, len(s.table), s.used, s.taken)
	}
	return nil
}
