package main

import (
	"container/list"

	"github.com/ringcache/ringcache/bench/internal/policy"
)

// lru evicts what was not used for longest, or with fifo what was put first.
type lru struct {
	capacity int64
	used     int64
	fifo     bool
	at       map[*policy.Item]*list.Element
	order    list.List
}

func newLRU(capacity int64, fifo bool) *lru {
	return &lru{capacity: capacity, fifo: fifo, at: map[*policy.Item]*list.Element{}}
}

func (l *lru) Get(it *policy.Item) bool {
	e, ok := l.at[it]
	if ok && !l.fifo {
		l.order.MoveToFront(e)
	}
	return ok
}

func (l *lru) Put(it *policy.Item) {
	if it.Size > l.capacity {
		return
	}
	for l.used+it.Size > l.capacity {
		old := l.order.Remove(l.order.Back()).(*policy.Item)
		delete(l.at, old)
		l.used -= old.Size
	}
	l.at[it] = l.order.PushFront(it)
	l.used += it.Size
}

// queue is a list that counts the bytes in it.
type queue struct {
	list.List
	bytes int64
}

func (q *queue) push(o *queued) {
	o.in, o.e = q, q.PushFront(o)
	q.bytes += o.it.Size
}

func (q *queue) remove(o *queued) {
	q.Remove(o.e)
	q.bytes -= o.it.Size
	o.in, o.e = nil, nil
}

func (q *queue) oldest() *queued {
	if e := q.Back(); e != nil {
		return e.Value.(*queued)
	}
	return nil
}

type queued struct {
	it   *policy.Item
	freq int
	in   *queue
	e    *list.Element
}

// s3fifo is S3-FIFO by bytes: a small queue for a tenth, a main queue with
// reinsertion, and a memory of the keys that left the small one.
type s3fifo struct {
	capacity           int64
	small, main, ghost queue
	at                 map[*policy.Item]*queued
	ghosts             map[*policy.Item]*queued
}

func newS3FIFO(capacity int64) *s3fifo {
	return &s3fifo{capacity: capacity, at: map[*policy.Item]*queued{}, ghosts: map[*policy.Item]*queued{}}
}

func (s *s3fifo) Get(it *policy.Item) bool {
	o, ok := s.at[it]
	if ok {
		o.freq = min(o.freq+1, 3)
	}
	return ok
}

func (s *s3fifo) Put(it *policy.Item) {
	if it.Size > s.capacity {
		return
	}
	for s.small.bytes+s.main.bytes+it.Size > s.capacity {
		if s.small.bytes >= s.capacity/10 || s.main.Len() == 0 {
			s.evictSmall()
		} else {
			s.evictMain()
		}
	}
	o := &queued{it: it}
	s.at[it] = o
	if g := s.ghosts[it]; g != nil {
		s.ghost.remove(g)
		delete(s.ghosts, it)
		s.main.push(o)
	} else {
		s.small.push(o)
	}
}

func (s *s3fifo) evictSmall() {
	o := s.small.oldest()
	s.small.remove(o)
	if o.freq > 0 {
		o.freq = 0
		s.main.push(o)
		return
	}
	delete(s.at, o.it)
	s.ghosts[o.it] = o
	s.ghost.push(o)
	for s.ghost.bytes > s.capacity {
		g := s.ghost.oldest()
		s.ghost.remove(g)
		delete(s.ghosts, g.it)
	}
}

func (s *s3fifo) evictMain() {
	for {
		o := s.main.oldest()
		s.main.remove(o)
		if o.freq == 0 {
			delete(s.at, o.it)
			return
		}
		o.freq--
		s.main.push(o)
	}
}

// tinyLFU is W-TinyLFU where it can only choose victims: a window takes every
// new item, the main part is a segmented LRU, and what falls out of the window
// is weighed against the oldest of the main part. Counts are exact and halved
// after every ten times as many uses as there are objects, so no sketch blurs
// the comparison.
type tinyLFU struct {
	capacity                 int64
	window                   float64
	recent, trial, protected queue
	at                       map[*policy.Item]*queued
	freq                     map[*policy.Item]int
	uses                     int
}

func newTinyLFU(capacity int64, window float64) *tinyLFU {
	return &tinyLFU{capacity: capacity, window: window, at: map[*policy.Item]*queued{}, freq: map[*policy.Item]int{}}
}

func (t *tinyLFU) count(it *policy.Item) {
	t.freq[it] = min(t.freq[it]+1, 15)
	if t.uses++; t.uses < 10*max(len(t.at), 16) {
		return
	}
	t.uses = 0
	for k, n := range t.freq {
		if n /= 2; n > 0 {
			t.freq[k] = n
		} else {
			delete(t.freq, k)
		}
	}
}

func (t *tinyLFU) Get(it *policy.Item) bool {
	t.count(it)
	o, ok := t.at[it]
	if !ok {
		return false
	}
	to := o.in
	if to == &t.trial {
		to = &t.protected
	}
	o.in.remove(o)
	to.push(o)
	for t.protected.bytes > t.mainSize()*8/10 {
		old := t.protected.oldest()
		t.protected.remove(old)
		t.trial.push(old)
	}
	return true
}

func (t *tinyLFU) mainSize() int64 { return int64(float64(t.capacity) * (1 - t.window)) }

func (t *tinyLFU) Put(it *policy.Item) {
	if it.Size > t.capacity {
		return
	}
	for t.recent.bytes+t.trial.bytes+t.protected.bytes+it.Size > t.capacity {
		t.evict(it.Size)
	}
	o := &queued{it: it}
	t.at[it] = o
	t.recent.push(o)
	// While there is room, the window's overflow moves on without a contest.
	for t.recent.bytes > t.capacity-t.mainSize() && t.recent.Len() > 1 &&
		t.trial.bytes+t.protected.bytes+t.recent.oldest().it.Size <= t.mainSize() {
		old := t.recent.oldest()
		t.recent.remove(old)
		t.trial.push(old)
	}
}

func (t *tinyLFU) evict(need int64) {
	candidate := t.recent.oldest()
	main := t.trial.oldest()
	if main == nil {
		main = t.protected.oldest()
	}
	loser := main
	switch {
	case main == nil:
		loser = candidate
	case candidate == nil || t.recent.bytes+need <= t.capacity-t.mainSize():
		loser = main
	case t.freq[candidate.it] > t.freq[main.it]:
		t.recent.remove(candidate)
		t.trial.push(candidate)
	default:
		loser = candidate
	}
	loser.in.remove(loser)
	delete(t.at, loser.it)
}
