package engine

import (
	"maps"
	"slices"
)

// requests are those of a session that are not settled. The session's lock guards them.
type requests struct {
	last     uint64 // number of a request
	streams  map[*Stream]struct{}
	children map[string]place // of streams, by the engine's ids
}

// place is where the outputs of an id belong.
type place struct {
	*Stream
	child int
}

// add gives the children of a stream ids that no other has ever had: an answer to one
// that was aborted may still be on its way.
func (r *requests) add(st *Stream) {
	r.last++
	st.name(r.last)
	for i, c := range st.children {
		r.children[c.id] = place{st, i}
	}
	r.streams[st] = struct{}{}
}

func (r *requests) remove(st *Stream) {
	delete(r.streams, st)
	for _, c := range st.children {
		delete(r.children, c.id)
	}
}

// register adds a stream, if the session takes requests.
func (s *session) register(st *Stream) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.takesRequests(); err != nil {
		return err
	}
	s.expectAnswer()
	s.requests.add(st)
	return nil
}

// forget removes a stream that is settled.
func (s *session) forget(st *Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests.remove(st)
}

// unsettled lists the streams of which something is still to be given back.
func (s *session) unsettled() []*Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.requests.streams))
}
