package lrusync

import "slices"

// What a sender does about the answers of its peer.

// Missed takes note of the peer's answer that items of a request were not there:
// the request has to be sent again with their data. Keys whose data went out
// after that request are there by now. at is the envelope of the request's
// ticket.
//
// If the peer is a [Receiver] that reports [Drift] as well, call Repair first.
func (s *Sender) Missed(at Envelope, keys []string) {
	keys = slices.Clone(keys) // the change may be made again after the call
	s.change(func() {
		if at.Sender != s.next.Sender || at.Epoch != s.next.Epoch {
			return // a Clear or a repair has settled that
		}
		for _, k := range keys {
			if v, _, ok := s.mirror.Peek(k); ok && v.seq <= at.Seq {
				s.mirror.Pop(k)
			}
		}
	})
}

// Renew makes the next request that uses a key carry its data, since the peer's
// copy is no longer wanted. The new data must belong to the same prompt updates:
// vLLM before 0.31 keeps its old copy all the same, and no vLLM notices that it
// lost a request which would have replaced the copy.
func (s *Sender) Renew(key string) {
	s.change(func() {
		v, _, _ := s.mirror.Peek(key)
		v.stale = true
		s.mirror.Replace(key, v)
	})
}

// change changes the mirror, also while a request is being sent.
func (s *Sender) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	if s.sending {
		s.meanwhile = append(s.meanwhile, f)
	}
}

// Repair makes the peer's contents the common ground again, and reports false if
// that has been done already. The next request starts a new epoch from there; one
// that is being sent now still belongs to the old.
func (s *Sender) Repair(d Drift) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.Sender != s.next.Sender || d.Epoch != s.next.Epoch {
		return false
	}
	if s.sending { // the peer no longer caches what comes in this epoch
		s.takeBack()
	}
	known := map[string]sent{}
	for k, e := range s.mirror.All() {
		known[k] = e.Value
	}
	s.mirror.Clear()
	for _, k := range d.Contents {
		v, ok := known[k.Key]
		// Without its prompt updates an item is of no use here, but it is there.
		v.stale = v.stale || !ok
		v.seq = 0
		if err := s.mirror.Put(k.Key, v, k.Size); err != nil {
			// The peer can't hold that. The digests will differ, and the peer
			// reports drift again.
			s.mirror.Clear()
			break
		}
	}
	s.mirror.restart()
	s.next.Epoch++
	s.next.Seq = 0
	return true
}
