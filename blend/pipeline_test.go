package blend_test

import (
	"context"
	"errors"
	"io/fs"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ringcache/ringcache/blend"
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
