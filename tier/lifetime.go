package tier

import (
	"context"
	"sync"
	"time"
)

// lifetime counts what Close waits for: calls of a store, and its goroutines.
type lifetime struct {
	ctx    context.Context // of the goroutines; ends with Close
	cancel context.CancelFunc

	mu      sync.Mutex
	closed  bool           // no call enters any more
	running sync.WaitGroup // calls and goroutines
}

// newLifetime returns the lifetime of a store that is open.
func newLifetime() *lifetime {
	t := &lifetime{}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// enter begins a call of the store, unless it is closed. Calls may be nested, as in a loop over List.
func (t *lifetime) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.running.Add(1)
	}
	return !t.closed
}

// leave ends a call that has entered.
func (t *lifetime) leave() { t.running.Done() }

// refuse lets no more calls enter.
func (t *lifetime) refuse() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}

// Go starts a goroutine. Only calls and other goroutines may do so, since Close waits for these.
func (t *lifetime) Go(f func()) { t.running.Go(f) }

// sleep reports false if the store is closed before d is over.
func (t *lifetime) sleep(d time.Duration) bool {
	select {
	case <-t.ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
