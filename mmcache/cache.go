package mmcache

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"math"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/ringcache/ringcache/internal/turn"
	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/shmring"
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
func (c *Cache) Generation() pycompat.Generation { return c.o.Generation }

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
// shmring.Segment.Prepare.
func (c *Cache) Prepare(ctx context.Context, o shmring.MemoryOptions) (shmring.MemoryReport, error) {
	if s, ok := c.back.(*shared); ok {
		return s.w.Segment().Prepare(ctx, o)
	}
	return shmring.MemoryReport{}, fmt.Errorf("%w: mode %s has no segment", ErrInvalid, c.o.Mode)
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

// Begin starts a request. No other with its id may be open. wants are its items in
// the order of their prompt positions; none of them is evicted for another. Begin
// waits until the bytes that they may take fit into Options.InFlight, or ctx ends;
// items that are cached take none, and a request that takes none does not wait. A
// smaller request may pass one that waits, but can't keep it waiting for ever.
//
// Errors: [WaitError] when ctx ends; [TooLargeError] for a request that never fits;
// [ErrInvalid]; [ErrClosed].
func (c *Cache) Begin(ctx context.Context, id string, wants ...Want) (*Request, error) {
	r := &Request{c: c, id: id, running: 1, children: 1, byKey: make(map[string]*slot, len(wants)), sending: turn.New()}
	for _, w := range wants {
		if w.Key == "" {
			return nil, fmt.Errorf("%w: Want without a Key; see package mmhash", ErrInvalid)
		}
		if w.Bytes < 0 {
			return nil, fmt.Errorf("%w: Want.Bytes %d of key %q", ErrInvalid, w.Bytes, w.Key)
		}
		s := r.byKey[w.Key]
		if s == nil {
			s = &slot{key: w.Key, modality: w.Modality, tenant: w.Tenant, turn: make(chan struct{}, 1), charge: w.Bytes}
			if s.charge == 0 {
				s.charge = c.o.MaxItem
			}
			r.byKey[w.Key] = s
		}
		s.places++
		r.wants = append(r.wants, s)
	}
	if err := c.register(r); err != nil {
		return nil, err
	}
	if err := c.enter(ctx, id); err != nil {
		c.remove(r)
		return nil, err
	}
	err := r.claimMemory(ctx)
	if err == nil {
		err = c.open(r)
	}
	if err != nil {
		r.leave()
		return nil, err
	}
	for _, s := range r.byKey {
		if s.entry != nil {
			c.countQuery(s, true)
		}
	}
	return r, nil
}

// claimMemory waits for the memory of what is not cached.
func (r *Request) claimMemory(ctx context.Context) error {
	c := r.c
	// What is cached stays from now on, and needs no budget. Only then it is
	// waited for, and nobody with a budget waits for what is held here.
	var total int64
	for _, s := range r.byKey {
		if e, ok := c.back.find(s.key); ok {
			s.entry, s.charge = e, s.needs(e)
		}
		total += min(s.charge, math.MaxInt64-total)
	}
	if total > c.o.InFlight {
		return &TooLargeError{Bytes: total, Limit: c.o.InFlight}
	}
	claim, waited, err := c.budget.acquire(ctx, c.stopped, total)
	if waited > 0 {
		c.count(func(st *Stats) { st.Waits++; st.Waited += waited })
	}
	if err != nil {
		if c.stopped.Err() != nil {
			return errStopped(r.id)
		}
		if w := (*WaitError)(nil); errors.As(err, &w) {
			w.Request = r.id
		}
		return err
	}
	r.claim = claim
	if waited > 0 {
		r.lookAgain()
	}
	return nil
}

func errStopped(id string) error {
	return fmt.Errorf("%w, or shutting down: request %q can't begin", ErrClosed, id)
}

// register makes a request known that waits to begin.
func (c *Cache) register(r *Request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped.Err() != nil {
		return errStopped(r.id)
	}
	if other, ok := c.ids[r.id]; ok {
		return fmt.Errorf("%w: request %q is open already (begun %v ago); end it, or choose another id", ErrInvalid, r.id, ago(other.since))
	}
	c.ids[r.id], c.requests[r] = r, struct{}{}
	r.since = time.Now()
	return nil
}

// open begins a request that has all it waited for.
func (c *Cache) open(r *Request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errStopped(r.id)
	}
	r.become(open)
	c.stats.Begun++
	return nil
}

// remove forgets a request of which nothing is open any more.
func (c *Cache) remove(r *Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ids[r.id] == r {
		delete(c.ids, r.id)
	}
	delete(c.requests, r)
}

// enter passes the gate.
func (c *Cache) enter(ctx context.Context, id string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("mmcache: nothing was begun: %w", err)
	}
	err := c.pass(ctx, c.stopped, 1)
	if c.stopped.Err() != nil {
		if err == nil {
			c.gate.Release(1)
		}
		return errStopped(id)
	}
	if err != nil {
		return &WaitError{For: WaitClear, Request: id, Err: ctx.Err()}
	}
	return nil
}

// lookAgain gives slots what was cached while the request waited.
func (r *Request) lookAgain() {
	for _, s := range r.byKey {
		if s.entry != nil {
			continue
		}
		if e, ok := r.c.back.find(s.key); ok {
			r.keep(s, e)
		}
	}
}

// obtain finds an item, waits for whoever is making it, or makes it.
func (c *Cache) obtain(ctx context.Context, s *slot) (e *entry, hit bool, err error) {
	if e, ok := c.back.find(s.key); ok {
		return e, true, nil
	}
	e, err = c.produced(ctx, s)
	return e, false, err
}

// produced makes an item, or takes it from another request that does.
func (c *Cache) produced(ctx context.Context, s *slot) (*entry, error) {
	if s.produce == nil {
		return nil, fmt.Errorf("%w: there is no producer for %q", ErrInvalid, s.key)
	}
	for {
		f, lead := c.flying.join(s.key, s.tenant)
		if lead {
			return c.lead(ctx, s, f)
		}
		c.count(func(st *Stats) { st.Coalesced++ })
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, &WaitError{For: WaitItem, Key: s.key, Err: ctx.Err()}
		case <-c.done.Done():
			return nil, fmt.Errorf("%w: item %q was not made", ErrClosed, s.key)
		}
		switch {
		case f.err != nil && f.tenant != s.tenant:
			continue // its text is no business of another tenant's
		case errors.Is(f.err, context.Canceled), errors.Is(f.err, context.DeadlineExceeded), errors.Is(f.err, errPanicked),
			errors.Is(f.err, ErrTooLarge):
			continue // that was the other's affair
		case f.err != nil:
			return nil, f.err
		}
		if e, ok := c.back.find(s.key); ok && (e.item != nil || e.lease != nil) {
			return e, nil
		}
		if e, ok := f.e.shared(); ok && e.size+int64(len(e.updates)) <= s.charge {
			return e, nil
		}
	}
}

// lead makes an item for everyone who joined the flight.
func (c *Cache) lead(ctx context.Context, s *slot, f *flight) (*entry, error) {
	e, err := (*entry)(nil), errPanicked
	defer func() { c.flying.land(s.key, f, e, err) }()
	if cached, ok := c.back.find(s.key); ok && (cached.item != nil || cached.lease != nil) {
		e, err = cached, nil // made between the look and the flight
		return e, nil
	}
	b := &Builder{back: c.back, o: &c.o, key: s.key, tenant: s.tenant, limit: s.charge}
	if c.o.VerifyHits {
		b.check = c.verify
	}
	e, err = b.run(ctx, s.produce)
	c.count(func(st *Stats) {
		switch {
		case err != nil:
			st.ProduceErrors++
		default:
			st.Produced++
			st.refuse(e.cause)
		}
	})
	if err == nil && e.cause != NoCause {
		c.events.emit(Event{Kind: Refused, Key: s.key, Cause: e.cause})
		c.o.Logger.Debug("item not cached, sent inline", "key", s.key, "bytes", e.size, "cause", e.cause.String())
	}
	return e, err
}

// Hold keeps an item in the cache until it is released.
type Hold struct {
	c     *Cache
	e     *entry
	since time.Time
	once  sync.Once
}

// Lookup returns a hold on a cached item, so that between the look and the use,
// such as after deciding not to download an image, it can't be evicted: begin the
// request, then release the hold. In mode lru it is the engine that keeps the
// item, and may drop it all the same; a request then needs a producer that can
// make it. ctx ends the wait for a Clear that is going on.
//
// A Clear that comes between the look and the request waits for the hold, and the
// request for the Clear, until the context of either ends: give them a deadline, or
// release the hold first.
func (c *Cache) Lookup(ctx context.Context, key string) (*Hold, bool, error) {
	if err := c.enter(ctx, ""); err != nil {
		return nil, false, err
	}
	e, ok := c.back.find(key)
	if !ok {
		c.gate.Release(1)
		return nil, false, nil
	}
	h := &Hold{c: c, e: e, since: time.Now()}
	c.mu.Lock()
	closed := c.closed
	c.holds[h] = struct{}{}
	c.mu.Unlock()
	if closed { // abandoned meanwhile
		h.Release()
		return nil, false, errStopped("")
	}
	return h, true, nil
}

// Updates returns the item's prompt updates. They must not be written to.
func (h *Hold) Updates() []byte { return h.e.updates }

// Size returns the item's bytes by vLLM's rules.
func (h *Hold) Size() int64 { return h.e.size }

// Release ends the hold. Releasing twice is fine.
func (h *Hold) Release() {
	h.once.Do(func() {
		h.e.release()
		h.c.mu.Lock()
		delete(h.c.holds, h)
		h.c.mu.Unlock()
		h.c.gate.Release(1)
	})
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
