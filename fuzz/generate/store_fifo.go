package generate

import (
	"strconv"

	"github.com/ringcache/ringcache/fuzz"
)

func (s *stores) fifoStep() {
	switch n := s.Int(100); {
	case n < 24:
		s.put()
	case n < 31:
		s.look()
	case n < 61:
		s.read(s.Int(s.readers))
	case n < 66:
		s.drain(s.Int(s.readers))
	case n < 73:
		s.wholeRequest()
	case n < 78:
		if s.release.Touch {
			s.onKey("store.touch", s.key())
		}
	case n < 81:
		if s.release.Counting == 2 {
			s.add("store.release_touches", "w", nil)
		}
	case n < 85:
		s.add("store.free_unused", "w", nil)
	case n < 87:
		s.onKey("store.cached", s.key())
	case n < 96:
		s.doubtful()
	case n < 98:
		s.add("store.state", "w", nil)
	case n < 99:
		s.add("store.clear", "w", nil)
	default:
		s.anew()
	}
}

func (s *stores) put() {
	key := s.keyThat(false)
	op := s.add("store.put", "w", map[string]any{"key": key, "value": s.value(s.chunk())})
	s.give(op, key)
}

func (s *stores) look() {
	key := s.keyThat(true)
	s.give(s.onKey("store.lookup", key), key)
}

// counts names who counts a read that reader i makes, and its touch.
func (s *stores) counts(i int) string {
	if s.o.Lock == "" && !s.pool {
		return "w"
	}
	return "r" + strconv.Itoa(i)
}

// read lets a reader get the next object that it has to: mostly the oldest, mostly once.
func (s *stores) read(i int) {
	if len(s.pending[i]) == 0 {
		return
	}
	at := 0
	if s.Percent(15) {
		at = s.Int(len(s.pending[i]))
	}
	h := s.pending[i][at]
	switch {
	case s.Percent(4): // once more later
	case s.Percent(4): // never: the counts stay short
		s.pending[i] = append(s.pending[i][:at:at], s.pending[i][at+1:]...)
		return
	default:
		s.pending[i] = append(s.pending[i][:at:at], s.pending[i][at+1:]...)
	}
	if s.release.Touch && s.Percent(90) {
		s.add("store.touch", s.counts(i), s.handle(h))
	}
	s.add("store.get", s.counts(i), s.handle(h))
}

func (s *stores) drain(i int) {
	for _, h := range s.pending[i] {
		if s.release.Touch {
			s.add("store.touch", s.counts(i), s.handle(h))
		}
		s.add("store.get", s.counts(i), s.handle(h))
	}
	s.pending[i] = nil
}

// wholeRequest is what a frontend does for a request: it touches all keys, then looks up or puts
// each. The readers get them later.
func (s *stores) wholeRequest() {
	keys := make([]string, 1+s.Int(3))
	for i := range keys {
		keys[i] = s.key()
		if s.release.Touch {
			s.onKey("store.touch", keys[i])
		}
	}
	for _, key := range keys {
		if s.live(key) {
			s.give(s.onKey("store.lookup", key), key)
			continue
		}
		s.give(s.add("store.put", "w", map[string]any{"key": key, "value": s.value(s.chunk())}), key)
	}
	if s.release.Counting == 2 {
		s.add("store.release_touches", "w", nil)
	}
}

// live reports whether the model has a key.
func (s *stores) live(key string) bool {
	r, err := s.model.Do([]fuzz.Op{{Name: "store.cached", Args: map[string]any{"store": s.o.Store + "w", "key": key}}})
	return err == nil && r[0].Fields["cached"] == true
}

// anew ends the writer, or a reader, and makes it again. Handles of the old segment are forged
// ones for the new one; without signatures they may lead to memory that was never written.
func (s *stores) anew() {
	if s.Percent(50) {
		i := s.Int(s.readers)
		s.add("store.close", "r"+strconv.Itoa(i), nil)
		s.openReader(i)
		return
	}
	if s.Percent(20) {
		s.add("store.unlink", "w", nil)
	}
	for i := range s.readers {
		s.add("store.close", "r"+strconv.Itoa(i), nil)
	}
	s.add("store.close", "w", nil)
	if !s.release.Signed {
		s.issued, s.pending = nil, make([][]issued, s.readers)
	}
	s.create()
	for i := range s.readers {
		s.openReader(i)
	}
}
