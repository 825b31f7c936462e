package sizing

import "container/list"

// Store is what all hosts share.
type Store struct {
	capacity, used int64 // no capacity is no bound
	order          list.List
	at             map[int32]*list.Element
}

type stored struct {
	id    int32
	bytes int64
}

// Unbounded is the capacity of a store that gives up nothing.
const Unbounded = -1

// NewStore makes an empty store of so many bytes, or of Unbounded ones.
func NewStore(capacity int64) *Store {
	return &Store{capacity: capacity, at: map[int32]*list.Element{}}
}

// Use looks an object up, and reports whether it is there.
func (s *Store) Use(id int32) bool {
	e := s.at[id]
	if e != nil {
		s.order.MoveToFront(e)
	}
	return e != nil
}

// Put stores an object, if it has room, and gives up what was used least lately. Of what is there it is a use.
func (s *Store) Put(id int32, bytes int64) {
	if s.Use(id) || s.capacity != Unbounded && bytes > s.capacity {
		return
	}
	for s.capacity != Unbounded && s.used+bytes > s.capacity {
		last := s.order.Remove(s.order.Back()).(stored)
		delete(s.at, last.id)
		s.used -= last.bytes
	}
	s.at[id] = s.order.PushFront(stored{id, bytes})
	s.used += bytes
}
