package mmcache

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/shmring/memory"
)

// Cache is the multimodal cache of one frontend and one engine.
type Cache struct {
	o      Options
	back   backend
	budget *budget
	events events
	flying flights
	made   contents
	// gate is held once by every open request and hold, and altogether by Clear
	// and what closes the cache.
	gate *semaphore.Weighted
	// stopped ends when nothing new may begin, done when the cache is closed.
	stopped, done    context.Context
	stopNow, doneNow context.CancelFunc

	adoption objstore.Adoption

	mu       sync.Mutex
	closed   bool
	forced   bool                  // by Abandon
	requests map[*Request]struct{} // that something of is open
	ids      map[string]*Request   // of those that have not ended
	holds    map[*Hold]struct{}
	epoch    uint64
	stats    Stats
	reported lrusync.Stats
}

// Open makes a cache. In mode shm it creates the segment, which the workers
// attach to when they start, and removes it at Close; see objstore.Create for the
// errors.
func Open(o Options) (*Cache, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Cache{
		o: o, gate: semaphore.NewWeighted(everybody), budget: newBudget(o.InFlight),
		requests: map[*Request]struct{}{}, ids: map[string]*Request{}, holds: map[*Hold]struct{}{},
		made: contents{seed: maphash.MakeSeed(), sums: map[string]uint64{}},
	}
	c.stopped, c.stopNow = context.WithCancel(context.Background())
	c.done, c.doneNow = context.WithCancel(context.Background())
	switch o.Mode {
	case None:
		c.back = none{}
	case ProcessorOnly:
		c.back = newProcessorOnly(o, &c.events)
	case LRU:
		c.back, err = newMirrored(o, &c.events)
	case SHM:
		c.back, c.adoption, err = newShared(o, &c.events)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Mode returns the cache's mode.
func (c *Cache) Mode() Mode { return c.o.Mode }

// Generation returns the generation of the engine that the cache is for.
func (c *Cache) Generation() *pycompat.Generation { return c.o.Generation }

// Name returns the name of the segment of a cache of mode shm, which the engine
// needs (pycompat.SegmentEnv), else an empty string.
func (c *Cache) Name() string {
	if s, ok := c.back.(*shared); ok {
		return s.w.Name()
	}
	return ""
}

// Adoption says what Open found in a segment that it took over
// (Options.Adopt); it is zero if it made a new one.
func (c *Cache) Adoption() objstore.Adoption { return c.adoption }

// Prepare maps the pages of mode shm ahead, and asks for huge pages, NUMA nodes
// and locked memory; the report says what was obtained. See
// segment.Segment.Prepare.
func (c *Cache) Prepare(ctx context.Context, o memory.Options) (memory.Report, error) {
	if s, ok := c.back.(*shared); ok {
		return s.w.Segment().Prepare(ctx, o)
	}
	return memory.Report{}, fmt.Errorf("%w: mode %s has no segment", ErrInvalid, c.o.Mode)
}

// Fence marks a moment in the order of what was sent, see objstore.Writer.Fence:
// take it, send a call that every worker executes behind everything sent before,
// and call Passed when all have answered. Aborted requests keep items in mode shm
// until then. In other modes it does nothing.
func (c *Cache) Fence() objstore.Fence {
	if s, ok := c.back.(*shared); ok {
		return s.w.Fence()
	}
	return objstore.Fence{}
}

// State returns what the store of mode shm knows of every object, with the counts
// that are in the segment now. It fails in other modes, with [ErrInvalid].
func (c *Cache) State() (objstore.State, error) {
	if s, ok := c.back.(*shared); ok {
		st, err := s.w.State()
		return st, closedError(err)
	}
	return objstore.State{}, fmt.Errorf("%w: mode %s has no segment", ErrInvalid, c.o.Mode)
}

// ResetReaders says that the engine was restarted, with so many readers (0: as
// many as before), see objstore.Writer.ResetReaders: in mode shm the items stay,
// and requests that were committed to the old engine need none of them any more.
// In mode lru the new engine has nothing: use Clear.
func (c *Cache) ResetReaders(readers int) error {
	if s, ok := c.back.(*shared); ok {
		return closedError(s.w.ResetReaders(readers))
	}
	return fmt.Errorf("%w: mode %s has no readers", ErrInvalid, c.o.Mode)
}

// Invalidate makes an item a miss for every request that begins from now on, and
// reports whether it was cached. Those that have it keep it.
func (c *Cache) Invalidate(key string) bool {
	if !c.back.invalidate(key) {
		return false
	}
	c.count(func(st *Stats) { st.Invalidated++ })
	return true
}

// Clear forgets everything and begins a new epoch. It is a barrier: it waits
// until every request and hold has ended, while new ones wait; in mode lru only
// the order in which requests are sent counts, and it waits for no more than a send
// that is going on. send clears the engine (vLLM's reset_mm_cache); an error of it
// means that nothing was cleared. The envelope is for receivers of package lrusync.
//
// Errors: [BusyError], or [WaitError] in mode lru, when ctx ends; send's;
// [ErrInvalid] if send is nil; [ErrClosed].
func (c *Cache) Clear(ctx context.Context, send func(lrusync.Envelope) error) error {
	if send == nil {
		return fmt.Errorf("%w: the send of Clear is nil", ErrInvalid)
	}
	weight := int64(everybody)
	if _, ok := c.back.(*mirrored); ok {
		weight = 1 // only Close and Shutdown have to wait
	}
	stopped := fmt.Errorf("%w, or shutting down: Clear has done nothing", ErrClosed)
	if err := c.pass(ctx, c.stopped, weight); err != nil && c.stopped.Err() == nil {
		return &BusyError{Holders: c.Holders(), Err: ctx.Err()}
	} else if err != nil {
		return stopped
	}
	defer c.gate.Release(weight)
	if c.stopped.Err() != nil {
		return stopped
	}
	waiting, end := joined(ctx, c.stopped)
	defer end()
	if err := c.back.clear(waiting, send); err != nil {
		if c.stopped.Err() != nil && errors.As(err, new(*WaitError)) {
			return stopped
		}
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	c.stats.Hits, c.stats.Total, c.reported = 0, 0, lrusync.Stats{} // as upstream
	c.events.emit(Event{Kind: Cleared, Epoch: c.epoch})
	return nil
}

// Repair takes the report of a receiver of package lrusync that it has drifted.
// Requests whose items it missed are sent again with [Request.Missed].
func (c *Cache) Repair(d lrusync.Drift) bool {
	m, ok := c.back.(*mirrored)
	if !ok || !m.sender.Repair(d) {
		return false
	}
	c.count(func(st *Stats) { st.Repaired++ })
	c.events.emit(Event{Kind: Lost}) // what the engine has is another now
	return true
}

// Keys lists what is cached with the bytes of each, in the order in which it may
// be evicted; with objstore.Pool in the order of the addresses.
func (c *Cache) Keys() iter.Seq2[string, int64] {
	all, _ := c.back.contents()
	return func(yield func(string, int64) bool) {
		for _, k := range all {
			if !yield(k.Key, k.Size) {
				return
			}
		}
	}
}

// Subscribe returns a channel of events, which holds up to buffer of them, and
// the function that ends the subscription and closes the channel. The cache never
// waits for a subscriber: see [Lost].
func (c *Cache) Subscribe(buffer int) (<-chan Event, func()) { return c.events.subscribe(buffer) }

// CheckStructure verifies everything that must hold between calls.
func (c *Cache) CheckStructure() error {
	return errors.Join(c.back.check(), c.budget.check(), c.check())
}

func (c *Cache) check() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var begun, named int64
	for r := range c.requests {
		if r.state == open || r.state == committed {
			begun++
		}
		if r.state != ended {
			named++
		}
	}
	var errs []error
	if n := c.stats.open(); n != begun {
		errs = append(errs, fmt.Errorf("mmcache: %d requests are open, %d are counted", begun, n))
	}
	if named != int64(len(c.ids)) {
		errs = append(errs, fmt.Errorf("mmcache: %d requests have not ended, %d ids are taken", named, len(c.ids)))
	}
	return errors.Join(errs...)
}
