package lrutest

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/ringcache/ringcache/fuzz"
)

// Step is an operation on a cache, with what was seen before and after it.
type Step struct {
	Capacity      float64 // bytes
	Op            fuzz.Op
	Key           string // that the operation names or returned, "" if there is none
	Value         []byte // that Put got
	OK            bool   // what the operation returned
	Got           []byte // what Get returned
	Before, After State
	// Last is the value of each key that was put last, as far as Put reported that it was stored.
	Last map[string][]byte
	// Want is the same operation on vLLM's cache.
	Want      fuzz.Reply
	WantAfter map[string]any // its fields of lru.state
	GrowAnew  bool           // see Options
}

// State is what a cache shows of itself.
type State struct {
	Entries     []Entry // oldest first
	Size        int64
	Hits, Total int64 // 0 without a Counter
}

func (s State) find(key string) (e Entry, ok bool) {
	if i := s.place(key); i >= 0 {
		return s.Entries[i], true
	}
	return e, false
}

func (s State) place(key string) int {
	return slices.IndexFunc(s.Entries, func(e Entry) bool { return e.Key == key })
}

func (s State) keys() []string {
	out := make([]string, len(s.Entries))
	for i, e := range s.Entries {
		out[i] = e.Key
	}
	return out
}

// gone lists the entries that are there before and not after, without key, oldest first.
func (s *Step) gone(key string) (out []Entry) {
	for _, e := range s.Before.Entries {
		if _, ok := s.After.find(e.Key); !ok && e.Key != key {
			out = append(out, e)
		}
	}
	return out
}

// machine performs the operations of a sequence on one cache.
type machine struct {
	new   New
	cache Cache
	step  Step // what stays from step to step
}

func (m *machine) look() State {
	s := State{Entries: slices.Clone(m.cache.Entries()), Size: m.cache.Size()}
	if n, ok := m.cache.(Counter); ok {
		s.Hits, s.Total = n.Counts()
	}
	return s
}

// perform does an operation and returns the step, with what was there before and after it if
// watch is set. n tells values apart.
func (m *machine) perform(n int, op fuzz.Op, watch bool) (s Step, err error) {
	look := func() (s State) {
		if watch {
			s = m.look()
		}
		return s
	}
	if op.Name == "lru.new" {
		m.step = Step{Capacity: number(op.Args["capacity"]), Last: map[string][]byte{},
			GrowAnew: op.Args["grow_anew"] == true}
		m.cache = m.new(m.step.Capacity)
		s = m.step
		s.Op, s.OK, s.After = op, true, look()
		return s, nil
	}
	s = m.step
	s.Op, s.Before = op, look()
	s.Key, _ = op.Args["key"].(string)
	switch op.Name {
	case "lru.put":
		s.Value = bytes.Repeat([]byte{byte(n)}, max(int(number(op.Args["size"])), 0))
		if s.OK = m.cache.Put(s.Key, slices.Clone(s.Value)); s.OK {
			s.Last[s.Key] = s.Value
		}
	case "lru.get":
		s.Got, s.OK = m.cache.Get(s.Key)
	case "lru.pop":
		s.OK = m.cache.Remove(s.Key)
	case "lru.touch":
		m.cache.(Toucher).Touch(s.Key)
	case "lru.clear":
		m.cache.(Clearer).Clear()
	case "lru.pin":
		s.OK = m.cache.(Pinner).Pin(s.Key)
	case "lru.popitem":
		s.Key, s.OK = m.cache.(Popper).PopOldest(op.Args["remove_pinned"] == true)
	case "lru.stat": // look compares the counts
	default:
		return s, fmt.Errorf("%s: no cache has that here", op.Line())
	}
	s.After = look()
	return s, nil
}

// number reads a number of an operation.
func number(v any) float64 {
	switch v := v.(type) {
	case int:
		return float64(v)
	case int64:
		return float64(v)
	case float64:
		return v
	}
	return 0
}
