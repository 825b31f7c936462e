package generate

import (
	"encoding/hex"
	"slices"
	"strconv"

	"github.com/ringcache/ringcache/fuzz"
)

func (s *stores) poolStep() {
	switch n := s.Int(100); {
	case n < 12:
		s.begin()
	case n < 32:
		s.poolPut()
	case n < 42:
		s.poolLook()
	case n < 58:
		s.end()
	case n < 70:
		s.read(s.Int(s.readers))
	case n < 73:
		s.drain(s.Int(s.readers))
	case n < 80 && !s.o.BytesOnly:
		s.reservation()
	case n < 84:
		s.add("store.fence", "w", nil)
	case n < 89:
		s.onKey("store.evict", s.key())
	case n < 90:
		s.onKey("store.cached", s.key())
	case n < 95:
		s.doubtful()
	case n < 97:
		s.add("store.state", "w", nil)
	case n < 98:
		s.add("store.clear", "w", nil)
	case n < 99:
		s.resetReaders()
	default:
		s.crash()
	}
}

func (s *stores) begin() {
	id := "q" + strconv.Itoa(s.requests)
	if s.requests == 0 || s.Percent(95) { // or one that was there before
		s.requests++
		id = "q" + strconv.Itoa(s.requests)
	}
	s.request("store.begin", id)
	s.open = append(s.open, id)
}

// of adds a request to fields of an operation, mostly one that is open, and a tenant.
func (s *stores) of(args map[string]any) map[string]any {
	switch {
	case len(s.open) > 0 && s.Percent(70):
		args["request"] = s.open[s.Int(len(s.open))]
	case len(s.sent) > 0 && s.Percent(10):
		args["request"] = s.sent[s.Int(len(s.sent))]
	}
	return args
}

func (s *stores) tenant(args map[string]any) map[string]any {
	if s.Percent(40) {
		args["tenant"] = fuzz.Pick(s.Choices, "t1", "t2")
	}
	return args
}

func (s *stores) poolPut() {
	key := s.key()
	op := s.add("store.put", "w", s.tenant(s.of(map[string]any{"key": key, "value": s.value(s.chunk())})))
	s.give(op, key)
}

func (s *stores) poolLook() {
	key := s.key()
	s.give(s.add("store.lookup", "w", s.of(map[string]any{"key": key})), key)
}

// end moves a request on: an open one is committed or rolled back, and a committed one is
// finished or aborted. Now and then it is the wrong one.
func (s *stores) end() {
	open, sent := &s.open, &s.sent
	if s.Percent(4) {
		open, sent = sent, open
	}
	if s.Percent(50) {
		if id, ok := s.take(open); ok {
			if s.Percent(25) {
				s.request("store.rollback", id)
				s.readNoMore(id)
				return
			}
			s.request("store.commit", id)
			s.sent = append(s.sent, id)
		}
		return
	}
	if id, ok := s.take(sent); ok {
		s.request(fuzz.Pick(s.Choices, "store.finish", "store.abort"), id)
		s.readNoMore(id)
	}
}

// readNoMore lets readers leave out what belongs to a request, mostly: it has ended.
func (s *stores) readNoMore(request string) {
	if s.Percent(20) {
		return
	}
	for i := range s.pending {
		s.pending[i] = slices.DeleteFunc(s.pending[i], func(h issued) bool { return h.request == request })
	}
}

func (s *stores) take(list *[]string) (string, bool) {
	l := *list
	if len(l) == 0 {
		return "", false
	}
	i := s.Int(len(l))
	id := l[i]
	*list = append(l[:i:i], l[i+1:]...)
	return id, true
}

// reservation begins, fills, publishes or gives up an object that is written in place.
func (s *stores) reservation() {
	if len(s.reserved) == 0 || s.Percent(40) {
		key := s.key()
		n := max(1, s.chunk()-2*smallestChunk)
		data := map[string]any{"dtype": "uint8", "shape": []any{n}}
		field := map[string]any{"name": "x", "data": data, "field": map[string]any{"kind": "batched"}}
		value := map[string]any{"type": "item", "fields": []any{field}}
		s.add("store.reserve", "w", s.tenant(s.of(map[string]any{"key": key, "value": value})))
		s.reserved = append(s.reserved, key)
		s.add("store.fill", "w", map[string]any{"key": key, "field": "x", "offset": 0,
			"hex": hex.EncodeToString(content(len(s.ops)+1, n))})
		return
	}
	key, _ := s.take(&s.reserved)
	if s.Percent(30) {
		s.onKey("store.discard", key)
		return
	}
	s.give(s.onKey("store.publish", key), key)
}

// resetReaders is what a frontend does when the engine was restarted. What was committed ends.
func (s *stores) resetReaders() {
	s.add("store.reset_readers", "w", map[string]any{"readers": s.readers})
	s.sent = nil
	for i := range s.pending {
		s.pending[i] = nil
	}
}

// crash leaves the segment without a writer, and lets another one adopt it. Open requests and
// reservations are gone then.
func (s *stores) crash() {
	if s.o.NoCrash {
		return
	}
	s.add("store.detach", "w", nil)
	s.open, s.sent, s.reserved = nil, nil, nil
	args := map[string]any{}
	for name, v := range s.creation.Args {
		if name != "secret" {
			args[name] = v
		}
	}
	args["name"] = s.segment()
	s.add("store.adopt", "w", args)
	for i := range s.readers {
		if s.Percent(50) {
			s.add("store.close", "r"+strconv.Itoa(i), nil)
			s.openReader(i)
		}
	}
}
