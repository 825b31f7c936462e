package tier

import (
	"container/heap"
	"context"
	"math"
	"slices"
)

// urgent is the priority of what Pin or Get asks for. Prefetches have less.
const urgent = math.MaxInt

// job is work on some fetches: a lookup, or a transfer. Only the worker that runs the job finishes its
// fetches; while the job is queued, or waits for the job in front of it, anyone may do so under the lock of
// the fetcher.
type job struct {
	fetches  []*fetch
	run      func(*job)
	priority int
	prefix   bool             // fetches behind the first miss are of no use
	absent   []Key            // were asked for in the same call as the fetches of a lookup, and can't be fetched now
	level    int              // that the job uses
	lookup   *lookup          // of a lookup: what faster levels answered
	size     int64            // of a transfer, in bytes
	tenants  map[string]int64 // of size
	next     *job             // is queued after this one

	seq     int64
	index   int // in the queue, or -1
	running bool
	ctx     context.Context // while it runs; ends when nobody has interest in any of the fetches
	cancel  context.CancelFunc
}

// hasInterest reports whether somebody has interest in one of the fetches of a job.
func (j *job) hasInterest() bool { return slices.ContainsFunc(j.fetches, (*fetch).hasInterest) }

// queue is a heap of jobs: higher priorities first, then older ones.
type queue struct {
	jobs []*job
	seq  int64
}

// Len implements heap.Interface.
func (q *queue) Len() int { return len(q.jobs) }

// Less implements heap.Interface.
func (q *queue) Less(i, j int) bool {
	a, b := q.jobs[i], q.jobs[j]
	if a.priority != b.priority {
		return a.priority > b.priority
	}
	return a.seq < b.seq
}

// Swap implements heap.Interface.
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

// raise gives a job, and those that are queued after it, at least a priority.
func (q *queue) raise(j *job, priority int) {
	for ; j != nil && j.priority < priority; j = j.next {
		j.priority = priority
		if j.index >= 0 {
			heap.Fix(q, j.index)
		}
	}
}

// enqueueLookup queues the lookup of fetches that have no job. absent are keys that were asked for in the same
// call, and can't be fetched now.
func (f *fetcher) enqueueLookup(fetches []*fetch, absent []Key, priority int, prefix bool) {
	if len(fetches) > 0 {
		f.enqueue(&job{fetches: fetches, absent: absent, run: f.runLookup, priority: priority, prefix: prefix, index: -1})
	}
}

// enqueue queues a job. One in which nobody has interest is cancelled, and the next one is queued in its
// place.
func (f *fetcher) enqueue(j *job) {
	for j != nil && (f.stopped || !j.hasInterest()) {
		for _, x := range j.fetches {
			f.finish(x, errCancelled)
		}
		j = j.next
	}
	if j == nil {
		return
	}
	for some := j; some != nil; some = some.next {
		for _, x := range some.fetches {
			x.job = some
		}
	}
	f.queue.seq++
	j.seq = f.queue.seq
	heap.Push(&f.queue, j)
	f.workers.signal()
}

// cancelUnwantedJob cancels a job in whose fetches nobody has interest any more.
func (f *fetcher) cancelUnwantedJob(j *job) {
	switch {
	case j.hasInterest():
	case j.running:
		j.cancel()
	case j.index >= 0:
		heap.Remove(&f.queue, j.index)
		f.enqueue(j) // which finishes its fetches
	}
}

// nextWork returns the next job for a worker to run, or nil. Jobs of a level or a tenant that has its share
// let others pass. One that has no room yet lets nobody pass, or large objects would never have their turn.
func (f *fetcher) nextWork() func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	var passed []*job
	defer func() {
		for _, j := range passed {
			heap.Push(&f.queue, j)
		}
	}()
	for f.queue.Len() > 0 {
		j := heap.Pop(&f.queue).(*job)
		if !j.hasInterest() {
			f.enqueue(j)
			continue
		}
		if f.isBusy(j.level) || !f.budget.inQuota(j.tenants) {
			passed = append(passed, j)
			continue
		}
		if !f.budget.hasRoom(j.size) {
			passed = append(passed, j)
			return nil
		}
		f.startJob(j)
		return func() { f.runJob(j) }
	}
	return nil
}

// startJob charges a job that a worker is to run, and gives it its context.
func (f *fetcher) startJob(j *job) {
	f.charge(j, 1)
	j.running = true
	j.ctx, j.cancel = context.WithCancel(f.life.ctx)
}

// runJob runs a job without the lock. Its next one is queued afterwards.
func (f *fetcher) runJob(j *job) {
	j.run(j)
	j.cancel()
	f.mu.Lock()
	defer f.mu.Unlock()
	j.running = false
	f.charge(j, -1)
	f.enqueue(j.next)
}

// isBusy reports whether a level has its share of the workers.
func (f *fetcher) isBusy(level int) bool {
	return level < len(f.lower) && f.running[level] >= max(1, f.options.MaxCalls/len(f.lower))
}

// charge counts a job that begins to run, or ends if sign is -1.
func (f *fetcher) charge(j *job, sign int64) {
	f.budget.add(j.size, j.tenants, sign)
	if j.level < len(f.lower) { // without lower levels there are lookups all the same: in memory
		f.running[j.level] += int(sign)
	}
}
