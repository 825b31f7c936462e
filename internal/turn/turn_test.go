package turn_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/turn"
)

var ctx = context.Background()

func nothing() error { return nil }

// A call from within the turn is refused at once, at any depth; one from another
// goroutine waits, also if that runs the same code.
func TestTurnWithinATurnIsRefused(t *testing.T) {
	l := turn.New()
	require.NoError(t, l.Do(ctx, func() error {
		require.ErrorIs(t, l.Do(ctx, nothing), turn.ErrHeld)
		require.ErrorIs(t, deep(100, func() error { return l.Do(ctx, nothing) }), turn.ErrHeld)
		return nil
	}))
	require.NoError(t, l.Do(ctx, nothing))
}

func deep(n int, f func() error) error {
	if n == 0 {
		return f()
	}
	return deep(n-1, f)
}

func TestOthersWaitForTheirTurn(t *testing.T) {
	l, running := turn.New(), 0
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 200 {
				assert.NoError(t, l.Do(ctx, func() error {
					running++
					defer func() { running-- }()
					assert.Equal(t, 1, running)
					return nil
				}))
			}
		})
	}
	wg.Wait()
}

// Turns of several locks may be nested; who has one waits for the other.
func TestNestedTurnsOfTwoLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := turn.New(), turn.New()
		both := func() error { return a.Do(ctx, func() error { return b.Do(ctx, nothing) }) }
		go func() { _ = b.Do(ctx, func() error { time.Sleep(time.Second); return nil }) }()
		synctest.Wait()
		require.NoError(t, both())
	})
}

func TestWaitEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := turn.New()
		go func() { _ = l.Do(ctx, func() error { time.Sleep(time.Minute); return nil }) }()
		synctest.Wait()
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		require.ErrorIs(t, l.Do(short, nothing), context.DeadlineExceeded)
		synctest.Wait()
		time.Sleep(time.Hour)
	})
}

func TestPanicEndsTheTurn(t *testing.T) {
	l := turn.New()
	require.Panics(t, func() { _ = l.Do(ctx, func() error { panic("in f") }) })
	require.NoError(t, l.Do(ctx, nothing))
}
