package shmstore

import (
	"container/heap"
	"time"
)

// SetDeadline replaces RequestOptions.Deadline; the zero time is none. It fails with
// [ErrEnded].
func (r *Request) SetDeadline(t time.Time) error {
	if err := r.s.lock(); err != nil {
		return err
	}
	defer r.s.mu.Unlock()
	if r.state == requestEnded {
		return r.notOpen()
	}
	r.setDeadline(t)
	return nil
}

// deadlines are the requests that end by themselves, the first one in front.
type deadlines []*Request

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].deadline.Before(d[j].deadline) }
func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].place, d[j].place = i, j
}
func (d *deadlines) Push(r any) {
	r.(*Request).place = len(*d)
	*d = append(*d, r.(*Request))
}
func (d *deadlines) Pop() any {
	r := (*d)[len(*d)-1]
	r.place = -1
	(*d)[len(*d)-1] = nil
	*d = (*d)[:len(*d)-1]
	return r
}

func (r *Request) setDeadline(t time.Time) {
	if r.place >= 0 {
		heap.Remove(&r.s.deadlines, r.place)
	}
	if r.deadline = t; !t.IsZero() {
		heap.Push(&r.s.deadlines, r)
	}
}

// expire ends the requests whose deadline has passed. Whoever takes the lock calls it.
func (s *Store) expire(now time.Time) {
	for len(s.deadlines) > 0 && !now.Before(s.deadlines[0].deadline) {
		r := s.deadlines[0]
		r.expired = true
		r.endNow(r.state == requestCommitted)
		s.wakeShutdown()
	}
}
