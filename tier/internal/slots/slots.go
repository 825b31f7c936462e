// Package slots bounds how much is done at the same time.
package slots

import (
	"context"
	"sync"
	"sync/atomic"
)

// Slots bounds how many goroutines do something at the same time: the channel has room for that many tokens.
type Slots chan struct{}

// Acquire waits for a slot, and Release gives it back. A free slot is granted even if the context has ended.
func (s Slots) Acquire(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	default:
	}
	// No slot is free: only now does the end of the context count.
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Release gives a slot back.
func (s Slots) Release() { <-s }

// Each calls f for 0 to n-1, in this order, from at most so many goroutines, and waits for all. A panic of
// f is raised again in the calling goroutine, which can recover from it.
func Each(n, workers int, f func(i int)) {
	workers = min(n, workers)
	if workers <= 1 {
		for i := range n {
			f(i)
		}
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	var panicked atomic.Pointer[any]
	for range workers {
		wg.Go(func() {
			defer func() {
				if v := recover(); v != nil {
					panicked.Store(&v)
				}
			}()
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				f(i)
			}
		})
	}
	wg.Wait()
	if v := panicked.Load(); v != nil {
		panic(*v)
	}
}
