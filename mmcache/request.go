package mmcache

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ringcache/ringcache/internal/turn"
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
// What holds: the slots' charges are what the request's claim holds; the request
// ends once, when its last running Item has returned.
type Request struct {
	c     *Cache
	id    string
	wants []*slot // by position; a key that is wanted twice is one slot
	byKey map[string]*slot

	claim *claim // of the budget; nil until Begin has it

	// sending is held by Commit, Missed and what ends the request, so that an
	// answer of the engine can't come in before Commit has returned.
	sending  *turn.Lock
	ticket   lrusync.Envelope // of the last time it was sent
	attempts int

	// Guarded by the cache's lock.
	state     state
	since     time.Time // when that state began
	children  int
	busy      bool     // Commit or Missed is running
	later     []ending // asked for from within send
	aborted   bool     // after it was sent
	abandoned bool     // by the cache
	running   int      // calls that use slots, and the request itself until it ends
}

type state uint8

const (
	waiting state = iota // in Begin
	open
	committed
	ended
)

// become changes the state. The cache's lock is held.
func (r *Request) become(s state) {
	r.state, r.since = s, time.Now()
	if s == ended {
		delete(r.c.ids, r.id)
	}
}

// slot is an item of a request.
type slot struct {
	key, modality, tenant string
	turn                  chan struct{} // of one, held by who fills the slot
	places                int64         // wants of this key
	charge                int64
	produce               Producer
	entry                 *entry
	hit                   bool
	verified              bool // by Options.VerifyHits
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
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	switch {
	case r.abandoned:
		return fmt.Errorf("%w: request %q was open when the cache was abandoned", ErrClosed, r.id)
	case r.state == ended:
		return fmt.Errorf("%w: %q", ErrEnded, r.id)
	case r.state == committed && want == open:
		return fmt.Errorf("%w: %q", ErrCommitted, r.id)
	case r.state != want:
		return fmt.Errorf("%w: request %q was not committed yet", ErrInvalid, r.id)
	}
	r.running++
	return nil
}

// leave ends such a call, and the request with the last one.
func (r *Request) leave() {
	r.c.mu.Lock()
	r.running--
	last, aborted := r.running == 0, r.aborted
	r.c.mu.Unlock()
	if !last {
		return
	}
	for _, s := range r.byKey {
		if s.entry != nil {
			s.entry.end(aborted)
		}
		r.release(s, s.charge)
	}
	r.c.remove(r)
	r.c.gate.Release(1)
}

// release gives back bytes of a slot, if the budget has given any.
func (r *Request) release(s *slot, bytes int64) {
	s.charge -= bytes
	if r.claim != nil {
		r.c.budget.release(r.claim, bytes)
	}
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
		return Item{}, &WaitError{For: WaitItem, Request: r.id, Key: key, Err: ctx.Err()}
	case <-r.c.done.Done():
		return Item{}, fmt.Errorf("%w: request %q was open when the cache was abandoned", ErrClosed, r.id)
	}
	if s.produce == nil || s.entry == nil {
		s.produce = produce
	}
	if s.entry == nil {
		e, hit, err := r.c.obtain(ctx, s)
		if w := (*WaitError)(nil); errors.As(err, &w) && w.Request == "" {
			w.Request = r.id
		}
		if err != nil {
			return Item{}, err
		}
		r.keep(s, e)
		r.c.countQuery(s, hit)
	}
	if s.hit && r.c.o.VerifyHits {
		r.c.verifyHit(ctx, s)
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
	r.release(s, s.charge-s.needs(e))
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
		if w := (*WaitError)(nil); errors.As(err, &w) && w.Request == "" {
			w.Request = r.id
		}
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
// Every item must have been obtained. In mode lru items that the engine dropped in
// the meantime are made again first, with ctx.
//
// From within send anything may be called that does not send: Finish, Abort and
// Rollback of this request then take effect when send has returned. In mode lru
// Commit, Missed and Clear fail there with [ErrInvalid].
//
// Errors: send's; [WaitError] when ctx ends while another request is being sent;
// [ErrInvalid]; [ErrCommitted]; [ErrEnded]; [ErrClosed].
func (r *Request) Commit(ctx context.Context, send func(Batch) error) error {
	return r.send(ctx, "Commit", open, send, func() error {
		for _, s := range r.wants {
			if s.entry == nil {
				return fmt.Errorf("%w: Commit without item %q", ErrInvalid, s.key)
			}
		}
		if err := r.c.back.commit(ctx, r, false, send); err != nil {
			return err
		}
		r.c.mu.Lock()
		defer r.c.mu.Unlock()
		if r.state == open {
			r.become(committed)
		} else { // it was abandoned, and sent all the same
			r.aborted = true
		}
		r.c.stats.Committed++
		return nil
	})
}

// Missed takes the engine's answer that it lacked items, and sends the request
// again with them, as Commit does. What is no longer at hand is made again, by
// the producers that Item was given. The client need not know.
func (r *Request) Missed(ctx context.Context, keys []string, send func(Batch) error) error {
	m, ok := r.c.back.(*mirrored)
	if !ok {
		return fmt.Errorf("%w: only an engine with a mirrored cache (mode lru) misses items, not mode %s", ErrInvalid, r.c.o.Mode)
	}
	return r.send(ctx, "Missed", committed, send, func() error {
		r.attempts++
		r.c.count(func(st *Stats) { st.Missed += int64(len(keys)); st.Resent++ })
		if err := m.missed(ctx, r, keys); err != nil {
			return err
		}
		// The second time everything at hand goes along.
		return m.commit(ctx, r, r.attempts > 1, send)
	})
}

// send runs f, which sends the request, in one of two states.
func (r *Request) send(ctx context.Context, what string, from state, send func(Batch) error, f func() error) error {
	if send == nil {
		return fmt.Errorf("%w: the send of %s is nil", ErrInvalid, what)
	}
	began := false
	waiting, end := joined(ctx, r.c.done)
	defer end()
	err := r.sending.Do(waiting, func() error {
		began = true
		if err := r.enter(from); err != nil {
			return err
		}
		defer r.leave()
		r.setBusy(true)
		defer r.endLater()
		return f()
	})
	switch {
	case began:
		return r.c.abandonedError(err)
	case errors.Is(err, turn.ErrHeld):
		return fmt.Errorf("%w: %s of request %q from within its own send", ErrInvalid, what, r.id)
	}
	return r.c.abandonedError(&WaitError{For: WaitSend, Request: r.id, Err: err})
}

// abandonedError is the error of a wait that ended since the cache was abandoned.
func (c *Cache) abandonedError(err error) error {
	if c.done.Err() != nil && errors.As(err, new(*WaitError)) {
		return fmt.Errorf("%w: the cache was abandoned", ErrClosed)
	}
	return err
}

func (r *Request) setBusy(busy bool) (later []ending) {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	later = r.later
	r.busy, r.later = busy, nil
	return later
}

// endLater does what was asked for from within send.
func (r *Request) endLater() {
	for _, how := range r.setBusy(false) {
		r.endNow(how)
	}
}

// SetChildren says that the engine will run the request as n children, each of
// which reads every item (sampling with n > 1). In mode shm each item counts as
// used n times. It must be called before Commit, and does nothing later; the
// request ends when all children have.
func (r *Request) SetChildren(n int) {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	if r.state == open && !r.busy {
		r.children = max(n, 1)
	}
}

// Rollback gives up a request that was not committed. It does nothing
// afterwards, so that it can be deferred.
func (r *Request) Rollback() { r.end(rollback) }

// Finish ends a request that the engine reported as finished: all of its workers
// have what they need. Before Commit it does nothing but to count as misuse
// (Stats.Misused) and to be logged: that is for Rollback.
func (r *Request) Finish() { r.end(finish) }

// Abort ends a request that was cancelled after it was committed. A worker may
// still read its items: see [Cache.Fence]. Before Commit it is as Finish.
func (r *Request) Abort() { r.end(abort) }

// ending is how a request ends.
type ending uint8

const (
	rollback ending = iota
	finish
	abort
)

func (r *Request) end(how ending) {
	err := r.sending.Do(r.c.done, func() error { r.endNow(how); return nil })
	if errors.Is(err, turn.ErrHeld) && !r.endAfterSend(how) {
		r.endNow(how)
	}
	// Any other error says that the cache was abandoned, and so was the request.
}

// endAfterSend makes the end wait for the send that is running. It reports false if
// none is any more.
func (r *Request) endAfterSend(how ending) bool {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	if r.busy {
		r.later = append(r.later, how)
	}
	return r.busy
}

func (r *Request) endNow(how ending) {
	c := r.c
	c.mu.Lock()
	ends, misused := false, false
	switch {
	case r.state == open && how == rollback:
		c.stats.RolledBack++
		ends = true
	case r.state == open:
		c.stats.Misused++
		misused = true
	case r.state == committed && how == finish:
		c.stats.Finished++
		ends = true
	case r.state == committed && how == abort:
		r.aborted = true
		c.stats.Aborted++
		ends = true
	}
	if ends {
		r.become(ended)
	}
	c.mu.Unlock()
	if misused {
		c.o.Logger.Warn("Finish or Abort of a request that was not committed does nothing; use Rollback", "request", r.id)
	}
	if ends {
		r.leave()
	}
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
