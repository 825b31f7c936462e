package mmcache

import (
	"context"
	"fmt"
	"sync"

	"github.com/ringcache/ringcache/lrusync"
)

// Want names an item of a request.
type Want struct {
	// Key is its cache key, vLLM's mm_hash (package mmhash).
	Key string
	// Bytes is the most that it may take, by vLLM's rules (lrusync.ItemSize) and
	// with its prompt updates. 0 is Options.MaxItem.
	Bytes int64
	// Tenant is whose bytes it is in mode shm, see Options.Quotas.
	Tenant string
	// Modality goes into the address items of vLLM before 0.16.
	Modality string
}

// Request is the use of some items by one request to the engine.
//
// What holds: a slot's charge is what the budget holds for it; the request ends
// once, when its last running Item has returned.
type Request struct {
	c     *Cache
	id    string
	wants []*slot // by position; a key that is wanted twice is one slot
	byKey map[string]*slot

	// sending is held by Commit, Missed and what ends the request, so that an
	// answer of the engine can't come in before Commit has returned.
	sending  sync.Mutex
	ticket   lrusync.Envelope // of the last time it was sent
	attempts int
	children int

	mu      sync.Mutex
	state   state
	aborted bool // after it was sent
	running int  // calls that use slots, and the request itself until it ends
}

type state uint8

const (
	open state = iota
	committed
	ended
)

// slot is an item of a request.
type slot struct {
	key, modality, tenant string
	turn                  chan struct{} // of one, held by who fills the slot
	places                int64         // wants of this key
	charge                int64
	produce               Producer
	entry                 *entry
	hit                   bool
}

// Item is an item that a request has.
type Item struct {
	key     string
	hit     bool
	size    int64
	updates []byte
	cause   Cause
}

// Key returns the item's key.
func (i Item) Key() string { return i.key }

// Hit reports whether it was cached when the request asked for it.
func (i Item) Hit() bool { return i.hit }

// Size returns its bytes by vLLM's rules.
func (i Item) Size() int64 { return i.size }

// Updates returns its prompt updates. They must not be written to.
func (i Item) Updates() []byte { return i.updates }

// Refused says why an item that was made is not cached.
func (i Item) Refused() Cause { return i.cause }

// ID returns the request's id.
func (r *Request) ID() string { return r.id }

// enter begins a call that uses slots, in one of two states.
func (r *Request) enter(want state) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state != want {
		return fmt.Errorf("%w: %s", ErrEnded, r.id)
	}
	r.running++
	return nil
}

// leave ends such a call, and the request with the last one.
func (r *Request) leave() {
	r.mu.Lock()
	r.running--
	last, aborted := r.running == 0, r.aborted
	r.mu.Unlock()
	if !last {
		return
	}
	for _, s := range r.byKey {
		if s.entry != nil {
			s.entry.end(aborted)
		}
		r.c.budget.release(s.charge)
		s.charge = 0
	}
	r.c.gate.Release(1)
}

// Item returns an item of the request: from the cache, from another request that
// is just making it, or made by produce. ctx ends the wait and is passed on to
// produce. Any number of goroutines may ask, for the same key or others.
//
// In mode lru produce may be called later still, by Commit or Missed, when the
// engine turns out not to have the item.
//
// Errors: produce's; ctx's; [TooLargeError] if the item exceeds what was
// announced; [ErrInvalid] for a key that Begin was not told of; [ErrEnded].
func (r *Request) Item(ctx context.Context, key string, produce Producer) (Item, error) {
	s := r.byKey[key]
	if s == nil {
		return Item{}, fmt.Errorf("%w: Begin was not told of key %q", ErrInvalid, key)
	}
	if err := r.enter(open); err != nil {
		return Item{}, err
	}
	defer r.leave()
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return Item{}, ctx.Err()
	}
	if s.produce == nil || s.entry == nil {
		s.produce = produce
	}
	if s.entry == nil {
		e, hit, err := r.c.obtain(ctx, s)
		if err != nil {
			return Item{}, err
		}
		r.keep(s, e)
		r.c.countQuery(s, hit)
	}
	e := s.entry
	return Item{key: key, hit: s.hit, size: e.size, updates: e.updates, cause: e.cause}, nil
}

// keep gives a slot its entry, and gives back what the budget need not hold.
func (r *Request) keep(s *slot, e *entry) {
	if s.entry != nil {
		s.entry.release()
	}
	s.entry = e
	hold := s.needs(e)
	r.c.budget.release(s.charge - hold)
	s.charge = hold
}

// needs returns the bytes of the budget that an entry takes in its slot.
func (s *slot) needs(e *entry) int64 {
	switch {
	case e.cached:
		return 0
	case e.item != nil:
		return e.size + int64(len(e.updates))
	}
	return s.charge // may have to be made yet (mode lru)
}

// make gives a slot its data, which the engine lacks.
func (r *Request) make(ctx context.Context, s *slot) error {
	if s == nil || s.entry.item != nil {
		return nil
	}
	e, err := r.c.produced(ctx, s)
	if err != nil {
		return fmt.Errorf("item %q has to be made again: %w", s.key, err)
	}
	r.keep(s, e)
	return nil
}

// Commit works out what goes on the wire and sends it. send must hand the request
// to the engine's queue and return; in mode lru no other request is sent
// meanwhile, so that the engine gets them in order. Its error means that nothing
// was sent: then Commit returns it, nothing has been counted, and the request is
// open as before.
//
// Every item must have been obtained. The request must not be ended from within
// send; from other goroutines it may, as soon as the engine answers. In mode lru items that the engine dropped
// in the meantime are made again first, with ctx.
func (r *Request) Commit(ctx context.Context, send func(Batch) error) error {
	r.sending.Lock()
	defer r.sending.Unlock()
	if err := r.enter(open); err != nil {
		return err
	}
	defer r.leave()
	for _, s := range r.wants {
		if s.entry == nil {
			return fmt.Errorf("%w: Commit without item %q", ErrInvalid, s.key)
		}
	}
	if err := r.c.back.commit(ctx, r, false, send); err != nil {
		return err
	}
	r.mu.Lock()
	r.state = committed
	r.mu.Unlock()
	r.c.count(func(st *Stats) { st.Committed++ })
	return nil
}

// Missed takes the engine's answer that it lacked items, and sends the request
// again with them, as Commit does. What is no longer at hand is made again, by
// the producers that Item was given. The client need not know.
func (r *Request) Missed(ctx context.Context, keys []string, send func(Batch) error) error {
	m, ok := r.c.back.(*mirrored)
	if !ok {
		return fmt.Errorf("%w: only an engine with a mirrored cache (mode lru) misses items, not mode %s", ErrInvalid, r.c.o.Mode)
	}
	r.sending.Lock()
	defer r.sending.Unlock()
	if err := r.enter(committed); err != nil {
		return err
	}
	defer r.leave()
	r.attempts++
	r.c.count(func(st *Stats) { st.Missed += int64(len(keys)); st.Resent++ })
	if err := m.missed(ctx, r, keys); err != nil {
		return err
	}
	// The second time everything at hand goes along.
	return m.commit(ctx, r, r.attempts > 1, send)
}

// SetChildren says that the engine will run the request as n children, each of
// which reads every item (sampling with n > 1). In mode shm each item counts as
// used n times. It must be called before Commit, and does nothing later; the
// request ends when all children have.
func (r *Request) SetChildren(n int) {
	r.sending.Lock()
	defer r.sending.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state == open {
		r.children = max(n, 1)
	}
}

// Rollback gives up a request that was not committed. It does nothing
// afterwards, so that it can be deferred.
func (r *Request) Rollback() { r.end(open, false, func(st *Stats) { st.RolledBack++ }) }

// Finish ends a request that the engine reported as finished: all of its workers
// have what they need. Before Commit it does nothing: that is for Rollback.
func (r *Request) Finish() { r.end(committed, false, func(st *Stats) { st.Finished++ }) }

// Abort ends a request that was cancelled after it was committed. A worker may
// still read its items: see [Cache.Fence].
func (r *Request) Abort() { r.end(committed, true, func(st *Stats) { st.Aborted++ }) }

func (r *Request) end(from state, aborted bool, count func(*Stats)) {
	r.sending.Lock()
	defer r.sending.Unlock()
	r.mu.Lock()
	if r.state != from {
		r.mu.Unlock()
		return
	}
	r.state, r.aborted = ended, aborted
	r.mu.Unlock()
	r.c.count(count)
	r.leave()
}

// wires makes the wire of every item.
func (r *Request) wires(f func(*entry) Wire) []Wire {
	out := make([]Wire, len(r.wants))
	for i, s := range r.wants {
		out[i] = f(s.entry)
	}
	return out
}

// sent says that the handles are on their way.
func (r *Request) sent() {
	for _, s := range r.byKey {
		if s.entry.lease != nil {
			s.entry.lease.Sent()
		}
	}
}

// takeBack undoes the issue of handles that were not sent.
func (r *Request) takeBack() {
	for _, s := range r.byKey {
		if s.entry.lease != nil {
			s.entry.lease.TakeBack()
		}
	}
}
