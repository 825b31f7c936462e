package tier

import (
	"container/list"
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"
)

// fetcher brings objects from lower levels into memory. A fetch is one object on its way: there is at most
// one for each key, for all who ask for the object. Its states, and who moves it on:
//
//   - queued: a miss of Pin or Prefetch, or one miss too many of Get, began it (admit, newFetch), and a lookup job has it
//     (fetch_queue.go).
//   - looked up: a worker asks one lower level for it, and queues the job again for the next level
//     (fetch_lookup.go). What no level has is finished.
//   - waiting: it was found, and its parent is fetched by another job. When the parent is finished, it is
//     queued again (fetch_plan.go).
//   - found: a transfer job has it, and waits for a worker, and for room in the budget of bytes
//     (fetch_plan.go).
//   - transferred: a worker reserves its place in memory, has the level read into it, and commits
//     (fetch_transfer.go).
//   - finished: err is nil if the object is in memory. Then promoted pins it for those who had interest
//     (promoted.go). Otherwise err is an answer, which each lease that asked hears of once, when it asks again,
//     however late (of such answers the newest Options.MaxFetches are kept), and which the negative cache
//     remembers if every level was asked, and none has the object; or no answer (errCancelled, errAskAgain),
//     and who asks again begins another fetch.
//
// Interest keeps a fetch going. A lease has interest for Options.PromotedFor after its last Pin, until it
// calls Unpin or Release. A Get has interest until it returns, and a Prefetch until its context ends. A fetch
// without interest is finished at once as long as it is queued or waiting, alone or with others in which
// there is none either; the context of a running job ends with the last interest in its fetches. A lease or
// Get raises the priority of a fetch to urgent, a Prefetch to its own.
//
// Delete blocks a key: its fetch is cancelled, and none begins until the deletion is over.
//
// mu guards all fields below it. Under mu the fetcher calls the memory level, whose leases do no input or
// output, and what has a leaf lock: negative cache, workers, health, report. It does not call the write-back
// part under mu.
type fetcher struct {
	*shared
	writes   *writeBack // gets what faster lower levels are to have a copy of
	negative *negativeCache

	mu      sync.Mutex
	stopped bool           // Close has begun: no fetch begins any more
	fetches map[Key]*fetch // that are not finished
	// interest has, for each lease, the fetches in which the lease has interest, and those that are finished
	// with an answer that the lease has not heard of: unreported is the number of these, and answers are their
	// fetches, oldest first.
	interest   map[string]map[Key]*fetch
	unreported int
	answers    list.List // of *fetch
	queue      queue     // jobs that wait for a worker
	running    []int     // jobs that workers run, by the level that they use
	budget     budget    // of bytes that transfers move
	promoted   promoted  // pins of what was fetched
	ghosts     ghosts    // how often keys were asked for that are not in memory
	blocked    blocked   // keys that are being deleted
}

// fetch is one object on its way into memory. The lock of the fetcher guards it.
type fetch struct {
	key     Key
	version uint32               // of the key in the negative cache, when the fetch began
	began   time.Time            // the lookup, in the first level; zero before
	leases  map[string]time.Time // that have interest, and until when
	waiters int                  // calls, prefetches and children that wait for done
	readers int                  // the waiters that are calls of Get
	counted bool                 // a Get has counted the key in ghosts
	deleted bool                 // a deletion waits for the end
	order   int                  // among the keys that were asked for in one call
	object  Object               // as a level described it
	// needsParent is set if the parent was asked for in the same call: without it the object is worthless.
	needsParent bool
	level       int // of the object: the fastest one

	// A fetch that is not finished has a job or, while it waits, a parent.
	job      *job
	parent   *fetch
	children []*fetch // that wait for the end of this one

	finished bool
	answer   *list.Element // of answers
	err      error         // nil: the object is in memory
	done     chan struct{} // closed when finished
}

// The errors of fetches that are no answer about the object.
var (
	errCancelled = errors.New("tier: the fetch was cancelled")
	errAskAgain  = errors.New("tier: the object may come by another way")
)

// isAnswer reports whether the error of a fetch is an answer about the object.
func isAnswer(err error) bool {
	return err != nil && !errors.Is(err, errCancelled) && !errors.Is(err, errAskAgain)
}

// newFetcher makes the part. lease is the one under which it fetches.
func newFetcher(sh *shared, lease Lease, writes *writeBack) *fetcher {
	limit := threeQuarters(sh.options.MaxBytesInFlight)
	return &fetcher{
		shared: sh, writes: writes, negative: newNegativeCache(sh.options.NegativeTTL),
		fetches: map[Key]*fetch{}, interest: map[string]map[Key]*fetch{},
		running: make([]int, len(sh.lower)), budget: newBudget(limit, &sh.quotas),
		promoted: newPromoted(lease), ghosts: newGhosts(), blocked: blocked{},
	}
}

// expire ends, until the store is closed, the interest and the pins whose time is over.
func (f *fetcher) expire() {
	for f.life.sleep(max(f.options.PromotedFor/2, time.Millisecond)) {
		now := time.Now()
		f.negative.expire(now)
		f.mu.Lock()
		f.expireInterest(now)
		f.promoted.expire(now, f.options.PromotedFor)
		f.mu.Unlock()
	}
}

// stop refuses new fetches, and finishes those that no worker has.
func (f *fetcher) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = true
	for _, x := range f.fetches {
		if x.job == nil || !x.job.running {
			f.finish(x, errors.Join(errCancelled, fs.ErrClosed))
		}
	}
	f.queue.jobs = nil
}

// close ends the pins of what was fetched, when workers and calls have ended.
func (f *fetcher) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.promoted.unpinAll()
}

// newFetch begins a fetch, which the caller queues.
func (f *fetcher) newFetch(k Key) *fetch {
	x := &fetch{key: k, version: f.negative.version(k), done: make(chan struct{}), leases: map[string]time.Time{}}
	f.fetches[k] = x
	return x
}

// hasInterest reports whether a fetch is to go on.
func (x *fetch) hasInterest() bool {
	return !x.finished && !x.deleted && (x.waiters > 0 || len(x.leases) > 0)
}

// addInterest notes that a lease asked for the object of a fetch.
func (f *fetcher) addInterest(x *fetch, lease string, now time.Time) {
	if f.interest[lease][x.key] != x {
		f.removeInterest(lease, x.key) // in an earlier fetch, whose answer is out of date
	}
	x.leases[lease] = now.Add(f.options.PromotedFor)
	if f.interest[lease] == nil {
		f.interest[lease] = map[Key]*fetch{}
	}
	f.interest[lease][x.key] = x
	f.makeUrgent(x)
}

// makeUrgent lets a fetch, and the parents it waits for, pass prefetches.
func (f *fetcher) makeUrgent(x *fetch) {
	for ; x != nil; x = x.parent {
		f.queue.raise(x.job, urgent)
	}
}

// removeInterest ends the interest of a lease in a key, and an answer that the lease has not heard of.
func (f *fetcher) removeInterest(lease string, k Key) {
	x := f.interest[lease][k]
	if x == nil {
		return
	}
	delete(x.leases, lease)
	f.unlistInterest(lease, k)
	if !x.finished {
		f.cancelUnwanted(x)
		return
	}
	f.unreported--
	if len(x.leases) == 0 {
		f.answers.Remove(x.answer)
	}
}

// unlistInterest takes an entry out of interest.
func (f *fetcher) unlistInterest(lease string, k Key) {
	delete(f.interest[lease], k)
	if len(f.interest[lease]) == 0 {
		delete(f.interest, lease)
	}
}

// removeLease ends the interest of a lease in keys, and the pins of those for the lease.
func (f *fetcher) removeLease(lease string, keys []Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range keys {
		f.removeInterest(lease, k)
		f.promoted.removeLease(lease, k)
	}
}

// removeLeaseOfAll ends all interest of a lease, and all pins for it.
func (f *fetcher) removeLeaseOfAll(lease string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k := range f.interest[lease] {
		f.removeInterest(lease, k)
	}
	f.promoted.removeLeaseOfAll(lease)
}

// expireInterest ends the interest of leases that have not asked again in time.
func (f *fetcher) expireInterest(now time.Time) {
	for lease, fetches := range f.interest {
		for k, x := range fetches {
			if !x.finished && x.leases[lease].Before(now) {
				f.removeInterest(lease, k)
			}
		}
	}
}

// removeWaiter ends the interest of a call, a prefetch or a child.
func (f *fetcher) removeWaiter(x *fetch) {
	x.waiters--
	f.cancelUnwanted(x)
}

// cancelUnwanted cancels a fetch in which nobody has interest any more.
func (f *fetcher) cancelUnwanted(x *fetch) {
	switch {
	case x.finished || x.hasInterest():
	case x.job != nil:
		f.cancelUnwantedJob(x.job)
	default:
		f.finish(x, errCancelled)
	}
}

// finish ends a fetch. An answer stays noted for the leases that asked, which hear of it when they ask again.
func (f *fetcher) finish(x *fetch, err error) {
	if x.finished {
		return
	}
	x.finished, x.err, x.job = true, err, nil
	delete(f.fetches, x.key)
	if isAnswer(err) {
		f.keepAnswer(x)
	} else {
		for lease := range x.leases {
			delete(x.leases, lease)
			f.unlistInterest(lease, x.key)
		}
	}
	close(x.done)
	if p := x.parent; p != nil {
		x.parent = nil
		f.removeWaiter(p)
	}
	for _, child := range x.children {
		if child.parent == x {
			child.parent = nil
			priority := 0
			if len(child.leases)+child.readers > 0 {
				priority = urgent
			}
			f.enqueueLookup([]*fetch{child}, nil, priority, false)
		}
	}
	x.children = nil
}

// keepAnswer keeps the answer of a fetch for the leases that asked. If there are too many answers, the oldest go.
func (f *fetcher) keepAnswer(x *fetch) {
	if len(x.leases) == 0 {
		return
	}
	x.object = Object{} // which may have a large note
	x.answer = f.answers.PushBack(x)
	f.unreported += len(x.leases)
	for f.unreported > f.options.MaxFetches {
		oldest := f.answers.Front().Value.(*fetch)
		for lease := range oldest.leases {
			f.removeInterest(lease, oldest.key)
		}
	}
}

// succeed finishes a fetch whose object is in memory.
func (f *fetcher) succeed(x *fetch) {
	f.promoted.pin(x)
	f.finish(x, nil)
}

// block keeps keys from being fetched until unblock, and cancels the fetches of them.
func (f *fetcher) block(keys []Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.blocked.add(keys)
	for _, k := range keys {
		x := f.fetches[k]
		if x == nil {
			continue
		}
		x.deleted = true
		if x.job == nil || !x.job.running {
			f.finish(x, errCancelled)
		} else {
			f.cancelUnwantedJob(x.job)
		}
	}
}

// unblock ends what block began, when the deletion is over.
func (f *fetcher) unblock(keys []Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.blocked.remove(keys)
}

// waitIdle waits until a key that is blocked is not being fetched any more.
func (f *fetcher) waitIdle(ctx context.Context, k Key) error {
	f.mu.Lock()
	x := f.fetches[k]
	f.mu.Unlock()
	if x == nil {
		return nil
	}
	select {
	case <-x.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// unpin ends the pins of keys, whoever has interest in them.
func (f *fetcher) unpin(keys []Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range keys {
		f.promoted.unpin(k)
	}
}
