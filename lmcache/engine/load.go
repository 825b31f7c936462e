package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/ringcache/ringcache/tier"
)

// A Load brings the KV of a request back layer by layer.
type Load struct {
	e      *Engine
	chunks []*chunk
	slots  []int64
	end    int
}

// LoadLayers looks which chunks of a request are there with all their layers. It loads and pins nothing yet.
func (e *Engine) LoadLayers(ctx context.Context, r Request) (*Load, error) {
	if err := e.needLayered(true); err != nil {
		return nil, err
	}
	chunks, err := e.chunks(r, true)
	if err != nil {
		return nil, err
	}
	n, _, err := e.prefix(ctx, chunks, nil)
	if err != nil {
		return nil, err
	}
	return &Load{e, chunks[:n], r.Slots, endOf(chunks[:n], r.Skip)}, nil
}

// End returns the end of the last token that is loaded, counted from the first token of the request:
// Request.Skip if none is.
func (l *Load) End() int { return l.end }

// Layers loads layer after layer, and yields each when its KV is in the slots. While the loop uses one, the
// next ones are loaded, so that with it Options.Window layers are in work: those are fetched from lower
// levels, pinned, and copied. When the loop ends, nothing is pinned and no goroutine is left, however it
// ends. Slots of layers in the window may have been written to then.
//
// An error ends the loop: that of ctx, or [ErrLost] if a chunk has gone since LoadLayers.
func (l *Load) Layers(ctx context.Context) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		if len(l.chunks) == 0 {
			for layer := range l.e.parts() {
				if !yield(layer, nil) {
					return
				}
			}
			return
		}
		lease, err := l.e.lease(ctx)
		if err != nil {
			yield(0, err)
			return
		}
		defer lease.Release()
		ctx, cancel := context.WithCancel(ctx)
		var loading sync.WaitGroup
		defer loading.Wait()
		defer cancel()
		loaded := make([]chan error, len(l.e.parts()))
		begun := 0
		for layer := range loaded {
			if err := l.e.renew(lease); err != nil {
				yield(layer, err)
				return
			}
			for ; begun < min(layer+l.e.o.Window, len(loaded)); begun++ {
				at, result := begun, make(chan error, 1)
				loaded[at] = result
				loading.Go(func() { result <- l.load(ctx, lease, at) })
			}
			err := <-loaded[layer]
			if err == nil {
				err = ctx.Err() // that the layer was loaded before that was noticed is chance
			}
			if !yield(layer, err) || err != nil {
				return
			}
		}
	}
}

// load brings one layer into the slots.
func (l *Load) load(ctx context.Context, lease *tier.StoreLease, layer int) error {
	keys := l.e.keysOf(l.chunks, layer)
	defer lease.Unpin(keys)
	placed, err := ask(ctx, func() []tier.Placed { return lease.Pin(keys) })
	if err != nil {
		return err
	}
	for i, c := range l.chunks {
		if placed[i].Err != nil || !l.e.fits(placed[i].Object, c, layer) {
			return fmt.Errorf(
				"%w: layer %d of the tokens %d to %d: %w",
				ErrLost, layer, c.start, c.end, reason(placed[i].Err))
		}
	}
	for i, c := range l.chunks {
		slots := l.slots[c.start:c.end]
		if err := l.e.o.Buffers.ScatterLayer(slots, layer, l.e.o.LayerFormat, placed[i].Bytes); err != nil {
			return err
		}
	}
	return held(lease)
}

func reason(err error) error {
	if err == nil {
		return errors.New("it has expired, or another one has its place")
	}
	return err
}
