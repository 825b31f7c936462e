package disk

import (
	"context"
	"sync"
	"sync/atomic"
)

// slots bound what is done at a time: each has room for one token for each that may do it.
type slots chan struct{}

// take waits for a slot. free gives it back.
func (s slots) take(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	default:
	}
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s slots) free() { <-s }

// forEach calls f for 0 to n-1, in this order, from at most so many goroutines, and waits. A panic of f is the
// caller's.
func forEach(n, workers int, f func(i int)) {
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
