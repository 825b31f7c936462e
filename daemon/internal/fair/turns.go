package fair

import (
	"container/heap"
	"sync"
)

// Turns limits how many goroutines work at a time. Goroutines that wait are admitted by
// process: the process whose requests have cost least comes next (start-time fair queueing).
// A process that was idle starts level with the others, so it neither saves up turns nor pays
// for the time in which nobody else wanted any. The methods may be called from any goroutine.
// See docs/decisions.md, "Requests are handled in turns, by process".
type Turns struct {
	mu      sync.Mutex // guards what follows, and queues
	free    int
	clock   int64 // cost of the process that had the last turn, when it got that
	seq     uint64
	waiting queues
}

// NewTurns returns n turns, which are all free.
func NewTurns(n int) *Turns { return &Turns{free: n} }

// Queue is the requests of a process. The zero value is one without any. It belongs to one Turns, in whose
// heap it is as long as requests wait in its line: acquire puts it there, and next takes it out with its last
// one. A request that runs is only counted.
type Queue struct {
	spent   int64 // what its turns cost
	running int
	line    []chan struct{}
	seq     uint64 // since when it is in line; decides between equals
	place   int    // in Turns.waiting, if there is a line
}

// Acquire waits for a turn. wake is a channel with room for one value, of the caller alone, which is empty
// before and after. Who has a turn must not wait for another request, nor for a client, nor for who reads the
// log.
func (t *Turns) Acquire(q *Queue, wake chan struct{}) { t.acquire(q, wake, false) }

// Yield gives the turn of a request back, which has cost so much until now, and waits for the next one. The
// request comes before others of its process, so that not many are half done.
func (t *Turns) Yield(q *Queue, wake chan struct{}, cost int) {
	t.Release(q, cost)
	t.acquire(q, wake, true)
}

// Release gives a turn back. cost is what was done in it, in any unit; the least is 1.
func (t *Turns) Release(q *Queue, cost int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q.running--
	q.spent += int64(max(0, cost-1)) // one is spent already
	if len(q.line) > 0 {
		heap.Fix(&t.waiting, q.place)
	}
	t.free++
	t.next()
}

// Waiting returns how many wait for a turn.
func (t *Turns) Waiting() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, q := range t.waiting {
		n += len(q.line)
	}
	return n
}

// acquire waits for a turn, in front of the other requests of the process if first is set.
func (t *Turns) acquire(q *Queue, wake chan struct{}, first bool) {
	t.mu.Lock()
	if q.running == 0 && len(q.line) == 0 {
		q.spent = max(q.spent, t.clock)
	}
	if t.free > 0 { // so nobody waits
		t.start(q)
		t.mu.Unlock()
		return
	}
	if first {
		q.line = append([]chan struct{}{wake}, q.line...)
	} else {
		q.line = append(q.line, wake)
	}
	if len(q.line) == 1 {
		t.seq++
		q.seq = t.seq
		heap.Push(&t.waiting, q)
	}
	t.mu.Unlock()
	<-wake
}

// start gives a turn to a process, which pays for it ahead. The clock never goes back.
func (t *Turns) start(q *Queue) {
	t.free--
	t.clock = max(t.clock, q.spent)
	q.spent++
	q.running++
}

// next lets those in whose turn it is.
func (t *Turns) next() {
	for t.free > 0 && len(t.waiting) > 0 {
		q := t.waiting[0]
		wake := q.line[0]
		q.line[0] = nil
		q.line = q.line[1:]
		t.start(q)
		if len(q.line) == 0 {
			q.line = nil
			heap.Pop(&t.waiting)
		} else {
			t.seq++
			q.seq = t.seq
			heap.Fix(&t.waiting, 0)
		}
		wake <- struct{}{}
	}
}

// queues is a heap of those that have a line.
type queues []*Queue

func (h queues) Len() int { return len(h) }
func (h queues) Less(i, j int) bool {
	if h[i].spent != h[j].spent {
		return h[i].spent < h[j].spent
	}
	return h[i].seq < h[j].seq
}
func (h queues) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements heap.Interface.
func (h *queues) Push(x any) {
	x.(*Queue).place = len(*h)
	*h = append(*h, x.(*Queue))
}

// Pop implements heap.Interface.
func (h *queues) Pop() any {
	n := len(*h) - 1
	q := (*h)[n]
	(*h)[n] = nil
	*h = (*h)[:n]
	return q
}
