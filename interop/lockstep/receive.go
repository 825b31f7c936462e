package main

import (
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/lrusync/upstream"
)

// receive is the engine's end for vLLM's sender, which the peer drives.
func (s *setup) receive() error {
	r, err := upstream.NewReceiverCache[recipe](lrusync.Options{Capacity: s.Capacity, Generation: s.rules})
	if err != nil {
		return err
	}
	for {
		var q request
		if err := s.w.read(&q); err != nil {
			return err
		}
		a := answer{ID: q.ID}
		switch q.Op {
		case opRequest:
			s.take(r, &q, &a)
		case opClear, opForget: // the difference is what the peer does
			r.Clear()
			if q.Op == opClear {
				s.report.Clears++
			} else {
				s.report.Restarts++
			}
		case opEnd:
			s.report.Renewed, s.report.Resends = q.Counts["invalidations"], q.Counts["resends"]
			s.report.RefusedLarge, s.report.RefusedGhost = q.Counts["refused_too_large"], q.Counts["refused_ghost"]
			s.report.Failed += q.Counts["failed"]
			return r.CheckStructure()
		default:
			return fmt.Errorf("operation %d", q.Op)
		}
		if err := s.w.write(a); err != nil {
			return err
		}
		if s.w.in.Buffered() == 0 { // the peer may be waiting
			if err := s.w.Flush(); err != nil {
				return err
			}
		}
	}
}

func (s *setup) take(r *upstream.ReceiverCache[recipe], q *request, a *answer) {
	fs := make([]lrusync.Feature[recipe], len(q.Items))
	for i, it := range q.Items {
		fs[i] = lrusync.Feature[recipe]{Key: it.Key, Identifier: it.Identifier, HasData: it.Has}
		if !it.Has {
			s.report.Hits++
			continue
		}
		size, err := it.Recipe.size(s.python)
		if err != nil {
			s.report.fails("request %d: %v", q.ID, err)
			return
		}
		if float64(size) > s.Capacity {
			s.report.Oversize++
		}
		fs[i].Value, fs[i].Size = it.Recipe, size
	}
	s.report.Items += int64(len(fs))
	before, _ := r.Contents()
	values, err := r.GetAndUpdate(fs)
	after, total := r.Contents()
	s.report.Evicted += vanished(before, after)
	if q.Order {
		s.report.Compared++
		if text := q.Contents.differ(after, total); text != "" {
			s.report.differs("request %d: %s", q.ID, text)
		}
	}
	var miss *upstream.MissError
	switch {
	case errors.As(err, &miss) && s.rules.Cache.MissError:
		s.report.Misses++
		a.Missing = miss.Keys
		return
	case err != nil:
		s.report.fails("request %d: %v", q.ID, err)
		return
	}
	s.report.Requests++
	for i, v := range values {
		if v != q.Items[i].Recipe { // which is also there when the data is not
			s.report.fails("request %d, %s: got %v, want %v", q.ID, q.Items[i].Key, v, q.Items[i].Recipe)
			return
		}
	}
}

func vanished(before, after []lrusync.KeySize) (n int64) {
	there := make(map[string]bool, len(after))
	for _, k := range after {
		there[k.Key] = true
	}
	for _, k := range before {
		if !there[k.Key] {
			n++
		}
	}
	return n
}
