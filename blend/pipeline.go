package blend

import (
	"context"
	"sync"
)

// Pipeline loads the KV of layers, in their order, while others are computed: load is called by one goroutine
// for the layers 0 to layers-1, compute by the caller's for each one that is loaded. At most window layers
// are loaded, or being loaded, and not yet computed, which bounds the memory that load needs. Pipeline
// returns the first error, or that of ctx, after both have returned.
func Pipeline(
	ctx context.Context, layers, window int,
	load func(ctx context.Context, layer int) error, compute func(layer int) error,
) error {
	if layers < 0 || window < 1 {
		return invalid("%d layers in a window of %d", layers, window)
	}
	window = min(window, max(layers, 1))
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel(nil)
	room, loaded := make(chan struct{}, window), make(chan int, window)
	wg.Go(func() {
		for layer := range layers {
			select {
			case room <- struct{}{}:
			case <-ctx.Done():
				return
			}
			if ctx.Err() != nil {
				return
			}
			if err := load(ctx, layer); err != nil {
				cancel(err)
				return
			}
			loaded <- layer // has room, as room had
		}
	})
	for range layers {
		select {
		case layer := <-loaded:
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := compute(layer); err != nil {
				return err
			}
			<-room
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
