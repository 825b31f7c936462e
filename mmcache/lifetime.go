package mmcache

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/sync/semaphore"
)

// wholeGate is the weight of the gate.
const wholeGate = math.MaxInt64

// errAbandoned is why the context done ended, if that is so.
var errAbandoned = errors.New("mmcache: abandoned")

// lifetime is what begins and ends with a cache.
type lifetime struct {
	// gate is held once by every open request and hold, and altogether by what has
	// to wait for these: Clear and the end of the cache.
	gate *semaphore.Weighted
	// stopped ends when nothing new may begin, done when the cache is closed.
	stopped, done context.Context
	stop          context.CancelFunc
	setDone       context.CancelCauseFunc

	opened time.Time
}

// now returns the time since the cache was opened, which takes half as long to ask for as
// the time of day.
func (l *lifetime) now() time.Duration { return time.Since(l.opened) }

func newLifetime() lifetime {
	l := lifetime{gate: semaphore.NewWeighted(wholeGate), opened: time.Now()}
	l.stopped, l.stop = context.WithCancel(context.Background())
	l.done, l.setDone = context.WithCancelCause(context.Background())
	return l
}

// acquire takes n of the gate: until ctx ends, or stop.
func (l *lifetime) acquire(ctx, stop context.Context, n int64) error {
	if l.gate.TryAcquire(n) {
		return nil
	}
	ctx, end := joined(ctx, stop)
	defer end()
	return l.gate.Acquire(ctx, n)
}

// enter has a request or a hold pass the gate.
func (l *lifetime) enter(ctx context.Context, id string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("mmcache: nothing was begun: %w", err)
	}
	err := l.acquire(ctx, l.stopped, 1)
	if l.stopped.Err() != nil {
		if err == nil {
			l.gate.Release(1)
		}
		return errStopped(id)
	}
	if err != nil {
		return &WaitError{For: forClear, Request: id, Err: ctx.Err()}
	}
	return nil
}

func errStopped(id string) error {
	return fmt.Errorf("%w, or shutting down: request %q can't begin", errClosed, id)
}

func (c *cache) Close() error { return c.closeNow(c.backend.close) }

// closeNow closes a cache by end, if nothing is open.
func (c *cache) closeNow(end func() error) error {
	if !c.gate.TryAcquire(wholeGate) {
		if c.done.Err() != nil {
			return nil // abandoned, and something still runs
		}
		return &BusyError{Holders: c.Holders()}
	}
	defer c.gate.Release(wholeGate)
	return c.closeAlone(end)
}

// closeAlone closes a cache of which nothing is open.
func (c *cache) closeAlone(end func() error) error {
	if c.done.Err() != nil {
		return nil
	}
	err := end()
	if errors.Is(err, errBusy) {
		return &BusyError{Err: err}
	}
	c.markClosed(nil) // whatever else went wrong
	return err
}

// markClosed reports false if the cache was closed before.
func (c *cache) markClosed(cause error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.done.Err() == nil
	c.stop()
	c.setDone(cause)
	c.events.close()
	return first
}

func (c *cache) Shutdown(ctx context.Context) error {
	if c.done.Err() != nil {
		return nil
	}
	c.stop()
	if err := c.acquire(ctx, c.done, wholeGate); err != nil {
		switch {
		case c.done.Err() == nil:
			return &BusyError{Holders: c.Holders(), Err: ctx.Err()}
		case errors.Is(context.Cause(c.done), errAbandoned):
			return fmt.Errorf("%w: the cache was abandoned while Shutdown waited", errClosed)
		}
		return nil // another Shutdown was first
	}
	defer c.gate.Release(wholeGate)
	return c.closeAlone(func() error { return c.backend.shutdown(ctx) })
}

func (c *cache) Abandon() error {
	if !c.markClosed(errAbandoned) {
		return nil
	}
	c.mu.Lock()
	var ended []*Request
	for r := range c.requests.all {
		if r.abandon() {
			ended = append(ended, r)
		}
	}
	c.checkChange()
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
	return c.backend.abandon()
}
