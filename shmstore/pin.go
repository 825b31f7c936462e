package shmstore

// Pin keeps the object under a key, without a request, until Unpin or Clear, and
// reports whether it is there. A pin does not survive the process.
func (s *Store) Pin(key string) (bool, error) {
	if err := s.lock(); err != nil {
		return false, err
	}
	defer s.mu.Unlock()
	o, ok := s.index[key]
	if ok && !o.pinned {
		o.pinned = true
		s.pinned[o] = struct{}{}
		s.file(o, classOf(o))
	}
	return ok, nil
}

// Unpin ends the pins of the given keys that have one, or all pins if no key is given.
func (s *Store) Unpin(keys ...string) {
	if s.lock() != nil {
		return
	}
	defer s.mu.Unlock()
	if len(keys) == 0 {
		for o := range s.pinned {
			s.unpin(o)
		}
	}
	for _, key := range keys {
		if o, ok := s.index[key]; ok {
			s.unpin(o)
		}
	}
}

func (s *Store) unpin(o *Object) {
	if o.pinned {
		o.pinned = false
		delete(s.pinned, o)
		s.file(o, classOf(o))
	}
}
