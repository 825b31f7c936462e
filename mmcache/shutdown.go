package mmcache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ringcache/ringcache/objstore"
)

// everybody is the weight of the whole gate.
const everybody = math.MaxInt64

// HolderState is what a [Holder] does.
type HolderState uint8

const (
	// Waiting: a request that waits in Begin.
	Waiting HolderState = iota + 1
	// Began: a request that was not committed yet.
	Began
	// Committed: a request that was sent and waits for Finish or Abort.
	Committed
	// Ending: a request that has ended, but for a call of it that still runs.
	Ending
	// Held: a [Hold].
	Held
)

func (s HolderState) String() string {
	return [...]string{"HolderState(0)", "waiting in Begin", "begun", "committed", "ending", "hold"}[min(int(s), 5)]
}

// Holder is a request or a hold that is open, so that the cache can't be closed.
type Holder struct {
	ID    string // of a request
	Key   string // of a Hold
	State HolderState
	Since time.Time // when that state began
}

func (h Holder) String() string {
	if h.State == Held {
		return fmt.Sprintf("a hold of item %q (for %v)", h.Key, ago(h.Since))
	}
	return fmt.Sprintf("request %q (%s for %v)", h.ID, h.State, ago(h.Since))
}

// Holders lists what is open, longest first.
func (c *Cache) Holders() []Holder {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]Holder, 0, len(c.requests)+len(c.holds))
	for r := range c.requests {
		all = append(all, Holder{ID: r.id, State: [...]HolderState{Waiting, Began, Committed, Ending}[r.state], Since: r.since})
	}
	for h := range c.holds {
		all = append(all, Holder{Key: h.e.key, State: Held, Since: h.since})
	}
	slices.SortFunc(all, func(a, b Holder) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Key, b.Key))
	})
	return all
}

// pass takes n of the gate: until ctx ends, or stop.
func (c *Cache) pass(ctx, stop context.Context, n int64) error {
	if c.gate.TryAcquire(n) {
		return nil
	}
	ctx, end := joined(ctx, stop)
	defer end()
	return c.gate.Acquire(ctx, n)
}

// joined returns a context that ends with either.
func joined(ctx, stop context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	end := context.AfterFunc(stop, cancel)
	return ctx, func() { end(); cancel() }
}

// Close ends the cache, and removes the segment of mode shm. It fails with
// [BusyError], and does nothing, while a request or a hold is open: [Cache.Shutdown]
// waits for these, [Cache.Abandon] does not. Closing twice is fine.
func (c *Cache) Close() error { return c.closeNow(c.back.close) }

// Detach is Close, but in mode shm it leaves the segment with its items for the
// next process (Options.Adopt).
func (c *Cache) Detach() error {
	if s, ok := c.back.(*shared); ok {
		return c.closeNow(s.w.Detach)
	}
	return c.closeNow(c.back.close)
}

func (c *Cache) closeNow(end func() error) error {
	if !c.gate.TryAcquire(everybody) {
		if c.done.Err() != nil {
			return nil // abandoned, and something still runs
		}
		return &BusyError{Holders: c.Holders()}
	}
	defer c.gate.Release(everybody)
	return c.finish(end)
}

// finish closes a cache of which nothing is open.
func (c *Cache) finish(end func() error) error {
	if c.done.Err() != nil {
		return nil
	}
	err := end()
	if errors.Is(err, objstore.ErrBusy) {
		return fmt.Errorf("%w: %w", ErrBusy, err)
	}
	c.markClosed(false) // whatever else went wrong
	return err
}

// markClosed reports false if the cache was closed before.
func (c *Cache) markClosed(byForce bool) bool {
	c.mu.Lock()
	first := !c.closed
	c.closed, c.forced = true, c.forced || first && byForce
	c.mu.Unlock()
	c.stopNow()
	c.doneNow()
	c.events.close()
	return first
}

func (c *Cache) wasAbandoned() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.forced
}

// Shutdown is Close that waits, as that of net/http does. From now on no request
// begins, and no Lookup or Clear: these fail with [ErrClosed], and so do those that
// wait. Shutdown waits until every request and hold has ended, and closes the
// cache. When ctx ends first the error is a [BusyError], which says what is open
// and wraps ctx's error; open requests go on as before, and Shutdown can be called
// again.
func (c *Cache) Shutdown(ctx context.Context) error {
	if c.done.Err() != nil {
		return nil
	}
	c.stopNow()
	err := c.pass(ctx, c.done, everybody)
	switch {
	case err != nil && c.done.Err() != nil && !c.wasAbandoned():
		return nil // another Shutdown was first
	case err != nil && c.done.Err() != nil:
		return fmt.Errorf("%w: the cache was abandoned while Shutdown waited", ErrClosed)
	case err != nil:
		return &BusyError{Holders: c.Holders(), Err: ctx.Err()}
	}
	defer c.gate.Release(everybody)
	return c.finish(func() error {
		if s, ok := c.back.(*shared); ok {
			return s.w.Shutdown(ctx)
		}
		return c.back.close()
	})
}

// Abandon ends the cache by force, for use with defer: requests that were not
// committed are rolled back, committed ones aborted, holds released, and who waits
// is woken with [ErrClosed]. In mode shm the names of the segment are removed at
// once, so that nothing is left behind. What those requests do later fails with
// ErrClosed, or does nothing. A producer that is still running can go on writing to
// its tensors: their memory goes when the producer has returned. Abandon does
// nothing after a Shutdown, Close, Detach or Abandon that succeeded.
func (c *Cache) Abandon() error {
	if !c.markClosed(true) {
		return nil
	}
	c.mu.Lock()
	var ended []*Request
	for r := range c.requests {
		if c.abandon(r) {
			ended = append(ended, r)
		}
	}
	var holds []*Hold
	for h := range c.holds {
		holds = append(holds, h)
	}
	c.mu.Unlock()
	for _, r := range ended {
		r.leave()
	}
	for _, h := range holds {
		h.Release()
	}
	if s, ok := c.back.(*shared); ok {
		return s.w.Abandon()
	}
	return nil
}

// abandon ends a request by force, and reports whether it was open. c.mu is held.
// A request that waits in Begin ends by itself.
func (c *Cache) abandon(r *Request) bool {
	switch r.state {
	case open:
		c.stats.RolledBack++
	case committed:
		r.aborted = true
		c.stats.Aborted++
	default:
		return false
	}
	r.abandoned = true
	r.become(ended)
	return true
}
