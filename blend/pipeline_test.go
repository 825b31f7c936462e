package blend_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/ringcache/ringcache/blend"
	"github.com/ringcache/ringcache/blend/rope"
	"github.com/ringcache/ringcache/blend/transformer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPipelineLoadsAheadWithinItsWindow(t *testing.T) {
	for _, window := range []int{1, 2, 5} {
		var loading, most atomic.Int64
		full := make(chan struct{}) // the window was full once
		var order []int
		err := blend.Pipeline(t.Context(), 20, window, func(_ context.Context, layer int) error {
			if n := loading.Add(1); n > most.Load() {
				most.Store(n)
				if n == int64(window) {
					close(full)
				}
			}
			return nil
		}, func(layer int) error {
			<-full // else nothing shows that loading goes ahead
			order = append(order, layer)
			loading.Add(-1)
			return nil
		})
		require.NoError(t, err)
		require.LessOrEqual(t, most.Load(), int64(window))
		require.Len(t, order, 20)
		for i, layer := range order {
			require.Equal(t, i, layer)
		}
	}
}

func TestPipelineEndsWithTheFirstError(t *testing.T) {
	broken := errors.New("broken")
	nothing := func(context.Context, int) error { return nil }
	require.ErrorIs(t, blend.Pipeline(t.Context(), 9, 2, func(_ context.Context, layer int) error {
		if layer == 4 {
			return broken
		}
		return nil
	}, func(layer int) error {
		require.Less(t, layer, 4, "what was not loaded is not computed")
		return nil
	}), broken)
	require.ErrorIs(t, blend.Pipeline(t.Context(), 9, 2, nothing, func(int) error { return broken }), broken)

	ctx, cancel := context.WithCancel(t.Context())
	require.ErrorIs(t, blend.Pipeline(ctx, 9, 2, func(ctx context.Context, layer int) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}, func(int) error { return nil }), context.Canceled)
	require.ErrorIs(t, blend.Pipeline(ctx, 9, 2, nothing, func(int) error { return nil }), context.Canceled)
	require.NoError(t, blend.Pipeline(t.Context(), 0, 2, nil, nil))
	require.ErrorIs(t, blend.Pipeline(t.Context(), 9, 0, nil, nil), fs.ErrInvalid)
}

// TestPipelineWithAWindowLargerThanAllLayers loads all of them ahead, and needs no memory for the rest.
func TestPipelineWithAWindowLargerThanAllLayers(t *testing.T) {
	loaded := make(chan struct{})
	computed := 0
	require.NoError(t, blend.Pipeline(t.Context(), 3, math.MaxInt, func(_ context.Context, layer int) error {
		if layer == 2 {
			close(loaded)
		}
		return nil
	}, func(int) error {
		<-loaded
		computed++
		return nil
	}))
	require.Equal(t, 3, computed)
}

// TestBlendingWhileLayersAreLoaded: a model computes each layer when it was moved, and at most two layers are
// moved ahead. The result is that of moving everything first.
func TestBlendingWhileLayersAreLoaded(t *testing.T) {
	model := randomModel(t, 6, nil)
	p := documents(rand.New(rand.NewPCG(6, 6)), 512)
	moved := p.move(t, model, rope.F32)
	o := blend.PlanOptions{Checks: []blend.Check{{Layer: 1, Selection: blend.Selection{Ratio: 0.2}}}}
	want := clone(moved)
	result := p.blend(t, model, want, blend.Keys, o)

	kv, err := blend.New(model.Shape(rope.F32), len(p.tokens))
	require.NoError(t, err)
	var moves []*blend.Move
	for _, m := range p.cover {
		move, err := blend.NewMove(model.Table(), kv, m.Start, alone(t, model, p.tokens[m.Start:m.End], 0, rope.F32))
		require.NoError(t, err)
		moves = append(moves, move)
	}
	ready, needed := make(chan int), make(chan int)
	var group errgroup.Group
	group.Go(func() error {
		return blend.Pipeline(t.Context(), kv.Layers, 2, func(_ context.Context, layer int) error {
			for _, m := range moves {
				if err := m.Layer(layer); err != nil {
					return err
				}
			}
			return nil
		}, func(layer int) error {
			ready <- layer
			<-needed // the next layer is asked for, so this one is computed
			return nil
		})
	})
	got, err := model.Blend(kv, p.tokens, p.plan(t, o, kv.Layers), transformer.Options{Before: func(layer int) error {
		if layer > 0 {
			needed <- layer
		}
		if loaded := <-ready; loaded != layer {
			return fmt.Errorf("layer %d in place of %d", loaded, layer)
		}
		return nil
	}})
	require.NoError(t, err)
	close(needed)
	require.NoError(t, group.Wait())
	require.Equal(t, want.Bytes, kv.Bytes)
	require.Equal(t, result.Logits, got.Logits)
}
