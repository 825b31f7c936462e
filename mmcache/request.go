package mmcache

import (
	"context"
	"fmt"
	"time"

	"github.com/ringcache/ringcache/internal/turn"
)

// Want names an item of a request.
type Want struct {
	// Key is its cache key, vLLM's mm_hash (package mmhash).
	Key string
	// Bytes is the most that it may take, by vLLM's rules (lrusync.ItemSize) and
	// with its prompt updates. 0 is Options.MaxItem.
	Bytes int64
	// Tenant is whose bytes it is in mode shm, see SharedOptions.Quotas.
	Tenant string
	// Modality goes into the address items of vLLM before 0.16.
	Modality string
}

// Request is the use of some items by one request to the engine.
//
// What holds: the charges of its items are what its claim holds; a request ends
// once, when its last running call has returned.
type Request struct {
	c     *cache
	id    string
	tx    transaction
	wants []*wanted // by position; a key that is wanted twice is there twice
	byKey map[string]*wanted
	claim *claim // of the budget; nil until Begin has it

	// sending is held by Commit, Missed and what ends the request, so that an
	// answer of the engine can't come in before Commit has returned.
	sending *turn.Lock

	// Guarded by the cache's lock.
	state    state
	since    time.Time // when that state began
	children int
	busy     bool     // Commit or Missed is running
	later    []ending // asked for meanwhile
	how      ending   // of state ended or abandoned
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

// become changes the state. The cache's lock is held.
func (r *Request) become(s state) {
	r.checkBecomes(s)
	r.state, r.since = s, time.Now()
	if s >= ended {
		delete(r.c.ids, r.id)
	}
}

// wanted is an item of a request.
type wanted struct {
	key, modality, tenant string
	places                int           // in the request
	turn                  chan struct{} // of one; its holder may change what follows
	charge                int64         // bytes of the request's claim that are for the item
	entry                 entry         // nil before the request has the item
	produce               Producer
	hit, verified         bool // verified by Options.VerifyHits
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

func newItem(e entry, hit bool) Item {
	d := e.describe()
	return Item{Key: d.key, Hit: hit, Size: d.size, Updates: d.updates, Refused: d.refused}
}

// enter begins a call that uses items, in one of two states.
func (r *Request) enter(want state) error {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
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
	r.running++
	return nil
}

func (r *Request) abandonedError() error {
	return fmt.Errorf("%w: request %q was open when the cache was abandoned", errClosed, r.id)
}

// leave ends such a call, and the request with the last one.
func (r *Request) leave() {
	r.c.mu.Lock()
	r.running--
	r.checkRunning()
	last, how := r.running == 0, r.how
	r.c.mu.Unlock()
	if !last {
		return
	}
	r.tx.end(how)
	for _, w := range r.byKey {
		r.release(w, w.charge)
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
	w := r.byKey[key]
	if w == nil {
		return Item{}, fmt.Errorf("%w: request %q has no Want of key %q", errInvalid, r.id, key)
	}
	if err := r.enter(open); err != nil {
		return Item{}, err
	}
	defer r.leave()
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return Item{}, &WaitError{For: forItem, Request: r.id, Key: key, Err: ctx.Err()}
	case <-r.c.done.Done():
		return Item{}, r.abandonedError()
	}
	if w.produce == nil || w.entry == nil {
		w.produce = produce
	}
	if w.entry == nil {
		e, hit := r.tx.find(key)
		if !hit {
			var err error
			if e, err = r.obtain(ctx, w); err != nil {
				return Item{}, err
			}
		}
		r.keep(w, e)
		r.c.countQuery(w, hit)
	}
	if w.hit && r.c.made != nil {
		r.c.verifyHit(ctx, w)
	}
	return newItem(w.entry, w.hit), nil
}

// keep gives a request an item, and gives back what the budget need not hold.
func (r *Request) keep(w *wanted, e entry) {
	w.entry = e
	r.release(w, w.charge-e.needs(w.charge))
}

// make makes an item that the request has, but not its data.
func (r *Request) make(ctx context.Context, w *wanted) error {
	if w.entry.data() != nil {
		return nil
	}
	e, err := r.obtain(ctx, w)
	if err != nil {
		return fmt.Errorf("item %q has to be made again: %w", w.key, err)
	}
	r.keep(w, e)
	return nil
}

// wires makes the wire of every item.
func (r *Request) wires(f func(entry) Wire) []Wire {
	out := make([]Wire, len(r.wants))
	for i, w := range r.wants {
		out[i] = f(w.entry)
	}
	return out
}
