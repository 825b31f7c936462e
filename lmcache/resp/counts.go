package resp

import "sync/atomic"

// Counts are numbers of a Server.
type Counts struct {
	Connected int // connections now
	// Since the start: connections, those that were refused, those that did not speak the protocol, and wrong
	// passwords.
	Connections, Refused, Malformed, WrongPasswords uint64
	// Objects that GET found and did not find, that SET stored, that it could not store, and that were gone
	// when a client asked for them that had heard they are there.
	Hits, Misses, Stored, NotStored, Lost uint64
}

type counters struct {
	connections, refused, malformed, wrongPasswords atomic.Uint64
	hits, misses, stored, notStored, lost           atomic.Uint64
}

// Counts returns the numbers of now.
func (s *Server) Counts() Counts {
	s.mu.Lock()
	connected := len(s.conns)
	s.mu.Unlock()
	n := &s.counts
	return Counts{
		Connected: connected, Connections: n.connections.Load(), Refused: n.refused.Load(),
		Malformed: n.malformed.Load(), WrongPasswords: n.wrongPasswords.Load(),
		Hits: n.hits.Load(), Misses: n.misses.Load(), Stored: n.stored.Load(), NotStored: n.notStored.Load(),
		Lost: n.lost.Load(),
	}
}
