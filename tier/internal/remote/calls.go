package remote

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// Calls has the calls of a level, with bounds of their number and of the bytes that they have in memory. Close
// waits for them.
type Calls struct {
	slots    chan struct{}
	most     int64               // of inFlight
	inFlight *semaphore.Weighted // bytes in memory
	errEnded error               // of calls after Close

	background context.Context // of the goroutines of Start; ends with Close
	cancel     context.CancelFunc

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup // of calls and goroutines; Add is guarded by mu
}

// NewCalls returns Calls with at most so many at a time, and so many bytes in memory. After Close, Enter
// fails with errEnded.
func NewCalls(calls int, bytes int64, errEnded error) *Calls {
	c := &Calls{slots: make(chan struct{}, calls), most: bytes, inFlight: semaphore.NewWeighted(bytes), errEnded: errEnded}
	c.background, c.cancel = context.WithCancel(context.Background())
	return c
}

// Enter begins a call: it counts the call, and waits for a slot. leave ends the call.
func (c *Calls) Enter(ctx context.Context) (leave func(), err error) {
	if err := EndOf(ctx); err != nil {
		return nil, err
	}
	if !c.add() {
		return nil, c.errEnded
	}
	select {
	case c.slots <- struct{}{}:
		return c.leave, nil
	case <-ctx.Done():
		c.calls.Done()
		return nil, ctx.Err()
	}
}

// TryEnter is Enter, if that does not have to wait: for goroutines that help a call which has entered.
func (c *Calls) TryEnter() (leave func(), ok bool) {
	if !c.add() {
		return nil, false
	}
	select {
	case c.slots <- struct{}{}:
		return c.leave, true
	default:
		c.calls.Done()
		return nil, false
	}
}

func (c *Calls) leave() { <-c.slots; c.calls.Done() }

// add counts a call that Close waits for, unless the level is closed.
func (c *Calls) add() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.calls.Add(1)
	return true
}

// Start runs a goroutine that Close waits for, with a context that ends then. It returns false after Close.
func (c *Calls) Start(fn func(ctx context.Context)) bool {
	if !c.add() {
		return false
	}
	go func() {
		defer c.calls.Done()
		fn(c.background)
	}()
	return true
}

// Reserve waits for a part of the bytes. Who wants more than all reserves all.
func (c *Calls) Reserve(ctx context.Context, bytes int64) (release func(), err error) {
	n := min(bytes, c.most)
	if err := c.inFlight.Acquire(ctx, n); err != nil {
		return nil, err
	}
	return func() { c.inFlight.Release(n) }, nil
}

// TryReserve is Reserve, if that does not have to wait.
func (c *Calls) TryReserve(bytes int64) (release func(), ok bool) {
	n := min(bytes, c.most)
	if !c.inFlight.TryAcquire(n) {
		return nil, false
	}
	return func() { c.inFlight.Release(n) }, true
}

// Idle reports whether no bytes are reserved: for tests.
func (c *Calls) Idle() bool {
	if !c.inFlight.TryAcquire(c.most) {
		return false
	}
	c.inFlight.Release(c.most)
	return true
}

// Closed reports whether Close was called.
func (c *Calls) Closed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// Close refuses further calls, ends the context of Start, and waits for what runs. first is true once.
func (c *Calls) Close() (first bool) {
	c.mu.Lock()
	first = !c.closed
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.calls.Wait()
	return first
}

// EndOf returns the error of the caller's context. A connection may notice the deadline a moment before the
// context does: then EndOf returns context.DeadlineExceeded, too.
func EndOf(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if at, ok := ctx.Deadline(); ok && !time.Now().Before(at) {
		return context.DeadlineExceeded
	}
	return nil
}
