package tier

import (
	"container/heap"
	"context"
	"math"
	"slices"
)

// urgent is the priority of what somebody asks for. Prefetches have less.
const urgent = math.MaxInt

// job is work on some flights: to look them up, or to move them into memory. Only the worker that runs
// it ends its flights; while it is queued, or waits for its turn behind another one, anyone may
// do so under the lock.
type job struct {
	flights  []*flight
	run      func(*job)
	priority int
	prefix   bool    // flights behind the first miss are not wanted
	level    int     // that the job asks or reads
	search   *search // of a lookup: what faster levels had
	size     int64
	tenants  map[string]int64 // of size
	next     *job             // is queued after this one

	seq     int64
	index   int // in the queue, or -1
	running bool
	ctx     context.Context // while it runs; ends when nobody wants any of the flights
	cancel  context.CancelFunc
}

// queue is a heap of jobs: higher priorities first, then older ones.
type queue struct {
	jobs []*job
	seq  int64
}

func (q *queue) Len() int { return len(q.jobs) }

func (q *queue) Less(i, j int) bool {
	a, b := q.jobs[i], q.jobs[j]
	if a.priority != b.priority {
		return a.priority > b.priority
	}
	return a.seq < b.seq
}

func (q *queue) Swap(i, j int) {
	q.jobs[i], q.jobs[j] = q.jobs[j], q.jobs[i]
	q.jobs[i].index, q.jobs[j].index = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	j := x.(*job)
	j.index = len(q.jobs)
	q.jobs = append(q.jobs, j)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(q.jobs) - 1
	j := q.jobs[last]
	q.jobs[last] = nil
	q.jobs = q.jobs[:last]
	j.index = -1
	return j
}

// push queues a job, or ends its flights if nobody wants them any more.
func (s *Store) push(j *job) {
	for j != nil && (s.stopping || !slices.ContainsFunc(j.flights, (*flight).wanted)) {
		for _, f := range j.flights {
			s.end(f, errUnwanted)
		}
		j = j.next
	}
	if j == nil {
		return
	}
	for _, f := range j.flights {
		f.job = j
	}
	for rest := j.next; rest != nil; rest = rest.next {
		for _, f := range rest.flights {
			f.job = rest
		}
	}
	s.queue.seq++
	j.seq = s.queue.seq
	heap.Push(&s.queue, j)
	s.wake.Broadcast()
}

// raise gives a queued job, and what comes after it, a higher priority.
func (s *Store) raise(j *job, priority int) {
	for ; j != nil && j.priority < priority; j = j.next {
		j.priority = priority
		if j.index >= 0 {
			heap.Fix(&s.queue, j.index)
		}
	}
}

// cancelUnwanted ends a job whose flights nobody wants any more.
func (s *Store) cancelUnwanted(j *job) {
	switch {
	case slices.ContainsFunc(j.flights, (*flight).wanted):
	case j.running:
		j.cancel()
	case j.index >= 0:
		heap.Remove(&s.queue, j.index)
		for _, f := range j.flights {
			s.end(f, errUnwanted)
		}
		s.push(j.next)
	}
}

// serve is a worker. The first one prefers what is to be written, so that a stream of reads
// doesn't keep it in memory for ever.
func (s *Store) serve(worker int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.stopping {
		do := s.choose(worker)
		if do == nil {
			s.wake.Wait()
			continue
		}
		s.mu.Unlock()
		do()
		s.mu.Lock()
		s.wake.Broadcast() // there is room for others
	}
}

// choose takes the next work, or nil if nothing can be done now.
func (s *Store) choose(worker int) func() {
	if worker == 0 {
		if do := s.chooseWrite(); do != nil {
			return do
		}
	}
	if j := s.chooseJob(); j != nil {
		return func() { s.runJob(j) }
	}
	return s.chooseWrite()
}

// chooseJob takes the first job that may run. Those of a level or a tenant that has its share let others pass. One that
// has no room yet lets nobody pass, or large objects would never have their turn.
func (s *Store) chooseJob() *job {
	var passed []*job
	defer func() {
		for _, j := range passed {
			heap.Push(&s.queue, j)
		}
	}()
	for s.queue.Len() > 0 {
		j := heap.Pop(&s.queue).(*job)
		if !slices.ContainsFunc(j.flights, (*flight).wanted) {
			for _, f := range j.flights {
				s.end(f, errUnwanted)
			}
			s.push(j.next)
			continue
		}
		if s.busy(j.level) || !s.moving.inQuota(j.tenants) {
			passed = append(passed, j)
			continue
		}
		if !s.moving.hasRoom(j.size) {
			passed = append(passed, j)
			return nil
		}
		s.moving.add(j.size, j.tenants, 1)
		s.count(j.level, 1)
		s.start(j)
		return j
	}
	return nil
}

func (s *Store) start(j *job) {
	j.running = true
	j.ctx, j.cancel = context.WithCancel(s.ctx)
}

func (s *Store) runJob(j *job) {
	j.run(j)
	j.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	j.running = false
	s.moving.add(j.size, j.tenants, -1)
	s.count(j.level, -1)
	s.push(j.next)
}

// busy reports whether a level has its share of the workers.
func (s *Store) busy(level int) bool {
	return level < len(s.lower) && s.lower[level].running >= max(1, s.options.MaxCalls/len(s.lower))
}

// count counts the jobs that use a level.
func (s *Store) count(level, n int) {
	if level < len(s.lower) { // without levels there are lookups all the same, of memory
		s.lower[level].running += n
	}
}
