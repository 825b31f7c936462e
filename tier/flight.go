package tier

import (
	"errors"
	"time"
)

// flight is an object on its way into memory: one, for all who want it. The lock of the store guards it.
//
// A flight is looked up by one job and moved by another. It is wanted while somebody waits for it, or a
// lease asked for it lately.
type flight struct {
	key     Key
	version uint32               // of the key, as far as misses are concerned, when the flight began
	asked   map[string]time.Time // leases that were answered with ErrPending, and when their interest ends
	waits   int                  // calls and prefetches that wait for done
	reads   int                  // those of waits that read the object when it is there
	counted bool                 // a Get that waits or waited has counted the key
	deleted bool                 // Delete waits for the end
	place   int                  // among the keys that were asked for together
	job     *job                 // has the flight; nil while it waits for its parent
	parent  *flight              // that the flight waits for
	after   []*flight            // children that wait for the end
	object  Object               // once it was looked up
	level   int                  // of the object: the fastest one

	ended bool
	err   error // nil: the object was brought
	done  chan struct{}
}

// Errors of flights that are no answer to whoever asked: who still wants the object starts anew.
var (
	errUnwanted  = errors.New("tier: nobody wants the object any more")
	errElsewhere = errors.New("tier: somebody else is bringing the object")
)

func (f *flight) wanted() bool {
	return !f.ended && !f.deleted && (f.waits > 0 || len(f.asked) > 0)
}

// newFlight begins a flight, which the caller queues.
func (s *Store) newFlight(k Key) *flight {
	f := &flight{key: k, version: s.missing.version(k), done: make(chan struct{}), asked: map[string]time.Time{}}
	s.flights[k] = f
	return f
}

// launch queues the lookup of new flights.
func (s *Store) launch(flights []*flight, priority int, prefix bool) {
	if len(flights) > 0 {
		s.push(&job{flights: flights, run: s.lookup, priority: priority, prefix: prefix, index: -1})
	}
}

// want notes that a lease asked for a flight.
func (s *Store) want(f *flight, lease string, now time.Time) {
	if s.asked[lease][f.key] != f {
		s.forget(lease, f.key) // an earlier flight, whose failure is news no more
	}
	f.asked[lease] = now.Add(s.options.PromotedFor)
	if s.asked[lease] == nil {
		s.asked[lease] = map[Key]*flight{}
	}
	s.asked[lease][f.key] = f
	s.hurry(f)
}

// hurry lets a flight, and the parent it waits for, pass prefetches.
func (s *Store) hurry(f *flight) {
	for ; f != nil; f = f.parent {
		s.raise(f.job, urgent)
	}
}

// forget drops a lease's interest in a key.
func (s *Store) forget(lease string, k Key) {
	f := s.asked[lease][k]
	if f == nil {
		return
	}
	delete(f.asked, lease)
	s.unlist(lease, k)
	if f.ended {
		s.untold--
		return
	}
	s.loseInterest(f)
}

func (s *Store) unlist(lease string, k Key) {
	delete(s.asked[lease], k)
	if len(s.asked[lease]) == 0 {
		delete(s.asked, lease)
	}
}

// unwait drops the interest of a call or a prefetch that waited.
func (s *Store) unwait(f *flight) {
	f.waits--
	s.loseInterest(f)
}

// loseInterest cancels a flight that nobody wants any more.
func (s *Store) loseInterest(f *flight) {
	switch {
	case f.ended || f.wanted():
	case f.job != nil:
		s.cancelUnwanted(f.job)
	default:
		s.end(f, errUnwanted)
	}
}

// forgetLease drops all interests of a lease.
func (s *Store) forgetLease(lease string) {
	for k := range s.asked[lease] {
		s.forget(lease, k)
	}
}

// forgetAskers drops the interests of leases that have not asked again in time.
func (s *Store) forgetAskers(now time.Time) {
	for lease, flights := range s.asked {
		for k, f := range flights {
			if f.asked[lease].Before(now) {
				s.forget(lease, k)
			}
		}
	}
}

// end ends a flight. A failure stays noted for the leases that asked, which hear of it when they
// ask again.
func (s *Store) end(f *flight, err error) {
	if f.ended {
		return
	}
	f.ended, f.err, f.job = true, err, nil
	delete(s.flights, f.key)
	for lease := range f.asked {
		if isOutcome(err) && s.untold < s.options.MaxPending {
			s.untold++
			continue
		}
		delete(f.asked, lease)
		s.unlist(lease, f.key)
	}
	close(f.done)
	if p := f.parent; p != nil {
		f.parent = nil
		s.unwait(p)
	}
	for _, child := range f.after {
		if child.parent == f {
			child.parent = nil
			priority := 0
			if len(child.asked)+child.reads > 0 {
				priority = urgent
			}
			s.launch([]*flight{child}, priority, false)
		}
	}
	f.after = nil
}

// isOutcome reports whether the error of a flight is an answer to whoever asked.
func isOutcome(err error) bool {
	return err != nil && !errors.Is(err, errUnwanted) && !errors.Is(err, errElsewhere)
}

// endAll ends all flights that no worker has.
func (s *Store) endAll(err error) {
	for _, f := range s.flights {
		if f.job == nil || !f.job.running {
			s.end(f, errors.Join(errUnwanted, err))
		}
	}
	s.queue.jobs = nil
}
