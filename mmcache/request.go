package mmcache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ringcache/ringcache/internal/ctxmutex"
)

// Request is the use of some items by one request to the engine.
//
// What holds: the charges of its items are what its claim holds; a request ends
// once, when its last running call has returned.
type Request struct {
	c     *cache
	id    string
	tx    transaction
	claim *claim // of the budget; nil if no item needed any

	// items are distinct; places are they by position, where a key that is wanted twice is
	// twice. byKey is nil if there are only a few.
	items  []wanted
	places []*wanted
	byKey  map[string]*wanted
	spare  []Wire // for the first batch that is sent

	// sending is held by Commit and Missed, so that Missed, which an answer of the engine calls for, waits
	// until Commit has returned. What ends the request meanwhile is done then.
	sending ctxmutex.Mutex

	next, previous *Request // guarded by the cache's lock, see requests

	mu       sync.Mutex    // guards what follows
	state    state         // that it is open begins and ends under the cache's lock, too
	since    time.Duration // when that state began, see cache.now
	how      ending        // of state ended or abandoned
	children int
	busy     bool     // Commit or Missed is running
	later    []ending // of the request, asked for meanwhile
	running  int      // calls that use items, and the request itself until it ends
}

// state is where a request is. What leads to the next one:
//
//	waiting    Begin returns -> open; or it fails, and the request is forgotten
//	open       Commit -> committed; Rollback -> ended; Cache.Abandon -> abandoned
//	committed  Finish, Abort -> ended; Cache.Abandon -> abandoned
//	ended      and abandoned: forgotten when the last call that runs has returned
type state uint8

const (
	waiting state = iota
	open
	committed
	ended
	abandoned
)

func (s state) String() string {
	return [...]string{"waiting", "begun", "committed", "ending", "ending"}[s]
}

// become changes the state. r.mu is held and, but for the state committed, the cache's lock.
func (r *Request) become(s state) {
	r.checkBecomes(s)
	r.state, r.since = s, r.c.now()
	if s >= ended {
		delete(r.c.ids, r.id)
	}
}

// Item is an item that a request, or a hold, has.
type Item struct {
	Key string
	// Hit reports whether it was cached when the request asked for it.
	Hit bool
	// Size is its bytes by vLLM's rules.
	Size int64
	// Updates are its prompt updates. They must not be written to.
	Updates []byte
	// Refused is why an item that was made is not cached, in every mode:
	//
	//	objstore.ErrFull       there is no room that nobody needs
	//	objstore.ErrTooLarge   the item is larger than the cache or its largest object
	//	objstore.ErrKeyExists  a request still uses an invalidated copy
	//	nil                    it is cached, or there is no cache
	Refused error
}

func newItem(e *entry, hit bool) Item {
	return Item{Key: e.key, Hit: hit, Size: e.size, Updates: e.updates, Refused: e.refused}
}

// enter begins a call that uses items, in one of two states.
func (r *Request) enter(want state) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.is(want); err != nil {
		return err
	}
	r.running++
	return nil
}

func (r *Request) stateNow() state {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

// is fails if the request is not in one of two states. r.mu is held.
func (r *Request) is(want state) error {
	switch {
	case r.state == abandoned:
		return r.abandonedError()
	case r.state == ended:
		return fmt.Errorf("%w: %q", ErrEnded, r.id)
	case r.state == committed && want == open:
		return fmt.Errorf("%w: %q", committedError{}, r.id)
	case r.state != want:
		return fmt.Errorf("%w: request %q was not committed yet", errInvalid, r.id)
	}
	return nil
}

func (r *Request) abandonedError() error {
	return fmt.Errorf("%w: request %q was open when the cache was abandoned", errClosed, r.id)
}

// leave ends such a call, and the request with the last one.
func (r *Request) leave() {
	r.mu.Lock()
	last := r.left()
	r.mu.Unlock()
	if last {
		r.finalize()
	}
}

// left counts that a call has left, and reports whether it was the last. r.mu is held.
func (r *Request) left() bool {
	r.running--
	r.checkRunning()
	return r.running == 0
}

// finalize gives back what a request has of which no call runs any more.
func (r *Request) finalize() {
	r.tx.end(&r.tx, r.how)
	for i := range r.items {
		r.release(&r.items[i], r.items[i].charge)
	}
	r.checkLeft()
	r.c.remove(r)
	r.c.gate.Release(1)
}

// release gives back bytes of an item, if the budget has given any.
func (r *Request) release(w *wanted, bytes int64) {
	w.charge -= bytes
	if r.claim != nil {
		r.c.budget.release(r.claim, bytes)
	}
	r.checkCharge(w)
}

// Item returns an item of the request: from the cache, from another request that
// is just making it, or made by produce. ctx ends the wait and is passed on to
// produce. Any number of goroutines may ask, for the same key or others.
//
// In mode lru produce may be called later still, by Commit or Missed, when the
// engine turns out not to have the item.
//
// Errors: produce's; ctx's; [TooLargeError] if the item exceeds what was
// announced; [fs.ErrInvalid] for a key that is in none of the Wants; [ErrEnded].
func (r *Request) Item(ctx context.Context, key string, produce Producer) (Item, error) {
	w := r.find(key)
	if w == nil {
		return Item{}, fmt.Errorf("%w: request %q has no Want of key %q", errInvalid, r.id, key)
	}
	if w.found && r.c.made == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if err := r.is(open); err != nil {
			return Item{}, err
		}
		return newItem(&w.entry, true), nil
	}
	if err := r.enter(open); err != nil {
		return Item{}, err
	}
	defer r.leave()
	switch err := w.making.Lock(ctx, r.c.done.Done()); {
	case errors.Is(err, ctxmutex.ErrStopped):
		return Item{}, r.abandonedError()
	case err != nil:
		return Item{}, &WaitError{For: forItem, Request: r.id, Key: key, Err: err}
	}
	defer w.making.Unlock()
	if w.produce == nil || !w.entry.exists() {
		w.produce = produce
	}
	if !w.entry.exists() {
		e, hit := r.tx.find(&r.tx, key)
		if !hit {
			var err error
			if e, err = r.obtain(ctx, w); err != nil {
				return Item{}, err
			}
		}
		r.keep(w, e)
		r.c.count(func(st *Stats) { r.c.query(st, w, hit) })
	}
	if w.hit && r.c.made != nil {
		r.c.verifyHit(ctx, w)
	}
	return newItem(&w.entry, w.hit), nil
}

// keep gives a request an item, and gives back what the budget need not hold.
func (r *Request) keep(w *wanted, e entry) {
	w.entry = e
	r.release(w, w.charge-e.needs(w.charge))
}

// make makes an item that the request has, but not its data.
func (r *Request) make(ctx context.Context, w *wanted) error {
	if w.entry.item != nil {
		return nil
	}
	e, err := r.obtain(ctx, w)
	if err != nil {
		return fmt.Errorf("item %q has to be made again: %w", w.key, err)
	}
	r.keep(w, e)
	return nil
}

// wires returns the wire of every item. The first ones lie in the request; what is sent
// again has memory of its own, since somebody may still have those.
func (r *Request) wires() []Wire {
	out := r.spare
	r.spare = nil
	if out == nil {
		out = make([]Wire, len(r.places))
	}
	for i, w := range r.places {
		out[i] = w.wire(r)
	}
	return out
}
