package coordinator

import "net/http"

// Counts are batches by what became of them, and what is kept.
type Counts struct {
	Applied, Duplicates, Stale, Full   int64
	Instances, Objects, StreamsWithGap int
}

// Counts returns them.
func (s *Server) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.events
	c.Full, c.Instances, c.Objects = s.index.full, len(s.instances), len(s.index.objects)
	for _, stream := range s.gate.streams {
		if stream.gap {
			c.StreamsWithGap++
		}
	}
	return c
}

func (s *Server) takeEvents(_ *http.Request, body []byte) (int, any, error) {
	var q eventsRequest
	if err := read(body, &q); err != nil {
		return 0, nil, err
	}
	for i := range q.Batches { // all or none
		if err := q.Batches[i].check(); err != nil {
			return 0, nil, err
		}
	}
	var r eventsResponse
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range q.Batches {
		v, err := s.gate.take(&q.Batches[i], s.o.Now())
		if err != nil {
			return 0, nil, err
		}
		switch v {
		case admitted:
			r.Applied++
			s.events.Applied++
		case duplicate:
			r.Duplicates++
			s.events.Duplicates++
		case stale:
			r.Stale++
			s.events.Stale++
		}
	}
	return http.StatusOK, r, nil
}
