package mmcache

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/pycompat"
)

// Cache is the multimodal cache of one frontend and one engine: what all modes have
// in common. As with net.Conn, its type has the rest: a cache of mode shm is a
// [*Shared], one of mode lru a [*Mirrored].
type Cache interface {
	// Begin starts a request. No other with its id may be open. wants are its items
	// in the order of their prompt positions; none of them is evicted for another.
	// Begin waits until the bytes that they may take fit into Options.InFlight, or
	// ctx ends; items that are cached take none, and a request that takes none does
	// not wait. A smaller request may pass one that waits, but can't keep it waiting
	// for ever.
	//
	// Errors: [WaitError] when ctx ends; [TooLargeError] for a request that never
	// fits; [fs.ErrInvalid]; [fs.ErrClosed].
	Begin(ctx context.Context, id string, wants ...Want) (*Request, error)

	// Lookup returns a hold on a cached item, so that between the look and the use,
	// such as after deciding not to download an image, it can't be evicted: begin the
	// request with [Hold.Begin], or release the hold. In mode lru it is the engine
	// that keeps the item, and may drop it all the same; a request then needs a
	// producer that can make it. ctx ends the wait for a Clear that is going on.
	Lookup(ctx context.Context, key string) (*Hold, bool, error)

	// Invalidate makes an item a miss for every request that begins from now on, and
	// reports whether it was cached. Those that have it keep it.
	Invalidate(key string) bool

	// Clear forgets everything and begins a new epoch. It is a barrier: it waits
	// until every request and hold has ended, while new ones wait; in mode lru only
	// the order in which requests are sent counts, and it waits for no more than a
	// send that is going on. send clears the engine (vLLM's reset_mm_cache); an error
	// of it means that nothing was cleared. The envelope is for receivers of package
	// lrusync.
	//
	// Errors: [BusyError], or [WaitError] in mode lru, when ctx ends; send's;
	// [fs.ErrInvalid] if send is nil; [fs.ErrClosed].
	Clear(ctx context.Context, send func(lrusync.Envelope) error) error

	// Keys lists what is cached with the bytes of each, in the order in which it may
	// be evicted; in a pool in the order of the addresses.
	Keys() iter.Seq2[string, int64]

	// Subscribe returns a channel of events, which holds up to buffer of them, and
	// the function that ends the subscription and closes the channel. The cache never
	// waits for a subscriber: see Event.Kind, "lost".
	Subscribe(buffer int) (<-chan Event, func())

	// Stats returns the counts and the state now.
	Stats() Stats

	// Holders lists what is open, longest first.
	Holders() []Holder

	// Mode returns the cache's mode, see Options.Mode.
	Mode() string

	// Generation returns the generation of the engine that the cache is for.
	Generation() *pycompat.Generation

	// CheckStructure verifies everything that must hold between calls.
	CheckStructure() error

	// Close ends the cache, and removes the segment of mode shm. It fails with
	// [BusyError], and does nothing, while a request or a hold is open: Shutdown
	// waits for these, Abandon does not. Closing twice is fine.
	Close() error

	// Shutdown is Close that waits, as that of net/http does. From now on no request
	// begins, and no Lookup or Clear: these fail with [fs.ErrClosed], and so do those
	// that wait. Shutdown waits until every request and hold has ended, and closes
	// the cache. When ctx ends first the error is a [BusyError], which lists what is
	// open and wraps ctx's error; open requests go on as before, and Shutdown can be
	// called again.
	Shutdown(ctx context.Context) error

	// Abandon ends the cache by force, for use with defer: requests that were not
	// committed are rolled back, committed ones aborted, holds released, and who
	// waits is woken with [fs.ErrClosed]. In mode shm the names of the segment are
	// removed at once, so that nothing is left behind. What those requests do later
	// fails with fs.ErrClosed, or does nothing. A producer that is still running can go
	// on writing to its tensors: their memory goes when the producer has returned.
	// Abandon does nothing after a Shutdown, Close or Abandon that succeeded.
	Abandon() error
}

// Open opens a cache of Options.Mode: in mode shm as [OpenShared], in mode lru as
// [OpenMirrored].
func Open(o Options) (Cache, error) {
	switch o.Mode {
	case modeLRU:
		return orNil(OpenMirrored(o))
	case modeSHM:
		return orNil(OpenShared(o))
	case modeProcessorOnly:
		return orNil(openProcessorOnly(o))
	default:
		return orNil(openUncached(o))
	}
}

// orNil returns a nil interface with an error.
func orNil[C Cache](c C, err error) (Cache, error) {
	if err != nil {
		return nil, err
	}
	return c, nil
}

// cache is what the types of all modes embed.
//
// Locks: mu is taken last, but for those of requests, budget and events.
type cache struct {
	o       Options
	backend backend
	// What the constructors of modes set: what Clear takes of the gate, and whether
	// not even the second place of an item in a request is a hit.
	clearWeight int64
	neverHits   bool

	lifetime
	budget *budget
	events events
	builds builds
	made   *contents // nil but for Options.VerifyHits

	committed atomic.Int64 // requests, for stats: Commit does not take mu

	mu       sync.Mutex
	requests requests            // of which something is open
	ids      map[string]*Request // of those that have not ended
	holds    map[*Hold]struct{}
	stats    Stats
}

// newCache returns what the constructor of a mode embeds; the constructor sets the
// backend. o has its defaults.
func newCache(o Options) *cache {
	c := &cache{
		o: o, clearWeight: wholeGate, lifetime: newLifetime(), budget: newBudget(o.InFlight),
		ids: map[string]*Request{}, holds: map[*Hold]struct{}{},
	}
	if o.VerifyHits {
		c.made = newContents()
	}
	return c
}

func (c *cache) Mode() string { return c.o.Mode }

func (c *cache) Generation() *pycompat.Generation { return c.o.Generation }

func (c *cache) Invalidate(key string) bool {
	if !c.backend.invalidate(key) {
		return false
	}
	c.builds.detach(key)
	c.count(func(st *Stats) { st.Invalidated++ })
	return true
}

func (c *cache) Clear(ctx context.Context, send func(lrusync.Envelope) error) error {
	if send == nil {
		return fmt.Errorf("%w: the send of Clear is nil", errInvalid)
	}
	stopped := fmt.Errorf("%w, or shutting down: Clear has done nothing", errClosed)
	switch err := c.acquire(ctx, c.stopped, c.clearWeight); {
	case c.stopped.Err() != nil:
		if err == nil {
			c.gate.Release(c.clearWeight)
		}
		return stopped
	case err != nil:
		return &BusyError{Holders: c.Holders(), Err: ctx.Err()}
	}
	defer c.gate.Release(c.clearWeight)
	ctx, end := joined(ctx, c.stopped)
	defer end()
	err := c.backend.clear(ctx, send)
	if c.stopped.Err() != nil && errors.As(err, new(*WaitError)) {
		return stopped
	}
	return err
}

// cleared begins a new epoch. The backends call it when they are empty, before
// anything can be cached again.
func (c *cache) cleared() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Epoch++
	c.stats.Hits, c.stats.Total = 0, 0 // as upstream
	c.events.emit(Event{Kind: eventCleared, Epoch: c.stats.Epoch})
}

func (c *cache) Keys() iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		for _, k := range c.backend.contents() {
			if !yield(k.Key, k.Size) {
				return
			}
		}
	}
}

func (c *cache) Subscribe(buffer int) (<-chan Event, func()) { return c.events.subscribe(buffer) }
