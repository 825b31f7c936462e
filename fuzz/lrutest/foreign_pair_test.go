package lrutest_test

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ringcache/ringcache/fuzz/lrutest"
)

// mirror is a list of entries, oldest first: both ends of the foreign pair have one.
type mirror struct {
	capacity int
	list     []foreignEntry
}

func (m *mirror) find(key string) int {
	return slices.IndexFunc(m.list, func(e foreignEntry) bool { return e.key == key })
}

func (m *mirror) touch(key string) {
	if i := m.find(key); i >= 0 {
		e := m.list[i]
		m.list = append(slices.Delete(m.list, i, i+1), e)
	}
}

func (m *mirror) put(key string, value []byte) {
	if i := m.find(key); i >= 0 {
		m.list = slices.Delete(m.list, i, i+1)
	}
	if len(value) > m.capacity {
		return
	}
	for m.size()+len(value) > m.capacity {
		m.list = m.list[1:]
	}
	m.list = append(m.list, foreignEntry{key: key, value: value})
}

func (m *mirror) size() (sum int) {
	for _, e := range m.list {
		sum += len(e.value)
	}
	return sum
}

func (m *mirror) Contents() (out []lrutest.Entry) {
	for _, e := range m.list {
		out = append(out, lrutest.Entry{Key: e.key, Size: int64(len(e.value))})
	}
	return out
}

// foreignSender numbers its messages within an epoch. After a report of drift it takes over what
// the receiver has, and begins a new epoch.
type foreignSender struct {
	mirror
	bug        string
	epoch, seq int
}

type foreignWire struct {
	epoch, seq int
	clear      bool
	base       []foreignEntry // of a new epoch
	items      []foreignEntry // without a value where it is omitted
}

func newForeignPair(bug string) lrutest.NewPair {
	return func(capacity float64) (lrutest.Sender, lrutest.Receiver) {
		s := &foreignSender{mirror: mirror{capacity: int(capacity)}, bug: bug}
		r := &foreignReceiver{mirror: mirror{capacity: int(capacity)}, bug: bug}
		if bug == "sender forgets eviction" {
			s.capacity += 4
		}
		return s, r
	}
}

func (s *foreignSender) Send(items []lrutest.Item, link func(lrutest.Message) error) (need []string, err error) {
	switch s.bug {
	case "sends nothing":
		return nil, nil
	case "refuses all":
		return nil, errors.New("later")
	case "asks for all":
		return []string{"a"}, nil
	case "panics at a duplicate":
		if len(items) > 1 && items[0].Key == items[1].Key {
			panic("twice")
		}
	}
	before := slices.Clone(s.list)
	wire := foreignWire{epoch: s.epoch, seq: s.seq, base: before}
	m := lrutest.Message{}
	if s.bug != "sender does not touch first" {
		for _, it := range items {
			s.touch(it.Key)
		}
	}
	for _, it := range items {
		i := s.find(it.Key)
		omit := i >= 0 && s.bug != "sender never omits"
		if !omit && it.Value == nil {
			need = append(need, it.Key)
			continue
		}
		e := foreignEntry{key: it.Key}
		if omit {
			s.touch(it.Key)
		} else {
			e.value = it.Value
			s.put(it.Key, it.Value)
		}
		wire.items = append(wire.items, e)
		m.Keys, m.Omitted = append(m.Keys, it.Key), append(m.Omitted, omit)
	}
	m.Wire = wire
	if need == nil {
		err = link(m)
	}
	if need != nil || err != nil {
		if s.bug != "refused leaves a trace" {
			s.list = before
		}
		return need, err
	}
	s.seq++
	return nil, nil
}

func (s *foreignSender) Answered(m lrutest.Message, a lrutest.Answer) {
	held, drifted := a.Report.([]foreignEntry)
	if drifted && s.bug != "sender ignores drift" && m.Wire.(foreignWire).epoch == s.epoch {
		s.list = slices.Clone(held)
		s.epoch, s.seq = s.epoch+1, 0
	}
	for _, key := range a.Missing {
		if i := s.find(key); i >= 0 && !drifted {
			s.list = slices.Delete(slices.Clone(s.list), i, i+1)
		}
	}
}

func (s *foreignSender) Clear(link func(lrutest.Message) error) error {
	if err := link(lrutest.Message{Wire: foreignWire{epoch: s.epoch + 1, clear: true}}); err != nil {
		return err
	}
	s.epoch, s.seq = s.epoch+1, 1
	if s.bug != "clear forgets the sender" {
		s.list = nil
	}
	return nil
}

// foreignReceiver stops caching when a number is missing, and reports what it has.
type foreignReceiver struct {
	mirror
	bug        string
	epoch, seq int
	drifted    bool
}

func (r *foreignReceiver) Receive(m lrutest.Message) (a lrutest.Answer) {
	wire := m.Wire.(foreignWire)
	if wire.clear {
		r.list, r.epoch, r.seq, r.drifted = nil, wire.epoch, 1, false
		return a
	}
	if wire.epoch > r.epoch && wire.seq == 0 && fmt.Sprint(wire.base) == fmt.Sprint(r.list) {
		r.epoch, r.seq, r.drifted = wire.epoch, 0, false
	}
	if wire.epoch != r.epoch || wire.seq != r.seq {
		r.drifted = r.bug != "receiver notices nothing"
	}
	r.seq++
	if r.drifted {
		a.Report = slices.Clone(r.list)
	}
	if r.drifted && wire.epoch > r.epoch {
		r.epoch = wire.epoch
	}
	if !r.drifted && r.bug != "receiver touches after the insert" {
		for _, it := range wire.items {
			r.touch(it.key)
		}
	}
	for i, it := range wire.items {
		r.take(it, m.Omitted[i], &a)
	}
	if !r.drifted && r.bug == "receiver touches after the insert" {
		for _, it := range wire.items {
			r.touch(it.key)
		}
	}
	return a
}

func (r *foreignReceiver) take(it foreignEntry, omitted bool, a *lrutest.Answer) {
	i := r.find(it.key)
	switch {
	case !omitted:
		a.Values = append(a.Values, it.value)
		if !r.drifted || r.bug == "receiver caches in a drift" {
			r.put(it.key, it.value)
		}
	case i < 0:
		a.Values, a.Missing = append(a.Values, nil), append(a.Missing, it.key)
	case r.bug == "value of the neighbour":
		a.Values = append(a.Values, r.list[0].value)
	default:
		a.Values = append(a.Values, r.list[i].value)
		if !r.drifted {
			r.touch(it.key)
		}
	}
}
