package shmstore

// spares are objects that a search for room found cheap to lose, beside the one that it chose: the
// next puts of that size take them, without a search.
//
// The rule is that of the search, which takes the cheapest of a sample of the objects. Of a sample
// of n, the n/sparesShare cheapest go, the chosen one included, where a search for each put would
// take the cheapest of each of as many samples. A store of which a search looks at a large part has
// no spares: there a search finds about the cheapest of all, and takes little time. A spare
// goes only while what it was chosen for holds: nobody has it, it is large enough by itself, and its
// value has not risen since; of several the one that is the cheapest now. TestSparesAreAsCheap
// compares the two.
type spares struct {
	need int64 // the least extent
	all  [maxSpares]spare
	n    int
}

type spare struct {
	o     *Object
	value float64 // when it was found
}

const (
	maxSpares   = 8
	sparesShare = 32
	// sparesPart: a search that looks at more than one of so many objects leaves none.
	sparesPart = 4
)

// begin forgets what an earlier search found. The one that begins is for an extent.
func (s *spares) begin(need int64) { s.need, s.n = need, 0 }

// offer keeps an object that a search looks at, if it is among the cheapest.
func (s *spares) offer(o *Object, value float64) {
	if o.extent() < s.need {
		return
	}
	if s.n == maxSpares {
		if value >= s.all[s.n-1].value {
			return
		}
		s.n--
	}
	i := s.n
	for ; i > 0 && s.all[i-1].value > value; i-- {
		s.all[i] = s.all[i-1]
	}
	s.all[i] = spare{o, value}
	s.n++
}

// end ends a search that looked at so many objects of those that there are.
func (s *spares) end(looked, objects int) {
	keep := 0
	if looked <= objects/sparesPart {
		keep = min(s.n, looked/sparesShare)
	}
	clear(s.all[keep:])
	s.n = keep
}

// pick returns the spare for an extent that is the cheapest now, nil if there is none.
func (s *spares) pick(of *space, need int64, held idSet) (best *Object) {
	if s.need != need {
		return nil
	}
	at, least := 0, 0.0
	for i := 0; i < s.n; {
		x := s.all[i]
		value, may := of.loss(x.o)
		if !may || value > x.value || held.has(x.o.chunk.id) {
			s.remove(i)
			continue
		}
		if best == nil || value < least {
			best, at, least = x.o, i, value
		}
		i++
	}
	if best != nil {
		s.remove(at)
	}
	return best
}

func (s *spares) remove(i int) {
	s.n--
	s.all[i] = s.all[s.n]
	s.all[s.n] = spare{}
}
