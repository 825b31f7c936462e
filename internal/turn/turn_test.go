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
	l := new(turn.Lock)
	require.NoError(t, l.Do(ctx, nil, func() error {
		require.ErrorIs(t, l.Do(ctx, nil, nothing), turn.ErrHeld)
		require.ErrorIs(t, deep(100, func() error { return l.Do(ctx, nil, nothing) }), turn.ErrHeld)
		return nil
	}))
	require.NoError(t, l.Do(ctx, nil, nothing))
}

// TestTurnBelowThousandsOfCallsIsRefused: no depth of calls makes a caller wait for itself.
func TestTurnBelowThousandsOfCallsIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which finds out if it waits for ever
		l := new(turn.Lock)
		require.NoError(t, l.Do(ctx, nil, func() error {
			for _, n := range []int{500, 512, 1000, 5000} {
				require.ErrorIs(t, deep(n, func() error { return l.Do(ctx, nil, nothing) }), turn.ErrHeld)
			}
			return nil
		}))
	})
}

func deep(n int, f func() error) error {
	if n == 0 {
		return f()
	}
	return deep(n-1, f)
}

func TestOthersWaitForTheirTurn(t *testing.T) {
	l, running := new(turn.Lock), 0
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 200 {
				assert.NoError(t, l.Do(ctx, nil, func() error {
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
		a, b := new(turn.Lock), new(turn.Lock)
		both := func() error { return a.Do(ctx, nil, func() error { return b.Do(ctx, nil, nothing) }) }
		go func() { _ = b.Do(ctx, nil, func() error { time.Sleep(time.Second); return nil }) }()
		synctest.Wait()
		require.NoError(t, both())
	})
}

func TestWaitEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(turn.Lock)
		go func() { _ = l.Do(ctx, nil, func() error { time.Sleep(time.Minute); return nil }) }()
		synctest.Wait()
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		require.ErrorIs(t, l.Do(short, nil, nothing), context.DeadlineExceeded)
		synctest.Wait()
		time.Sleep(time.Hour)
	})
}

func TestPanicEndsTheTurn(t *testing.T) {
	l := new(turn.Lock)
	require.Panics(t, func() { _ = l.Do(ctx, nil, func() error { panic("in f") }) })
	require.NoError(t, l.Do(ctx, nil, nothing))
}

// A waiter inside of the turn of another lock waits, whatever calls led there: here the turns of both locks were taken by
// the same calls.
func TestTurnOfAnotherLockByTheSameCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := [2]turn.Lock{}
		take := func(i int, f func() error) error { return locks[i].Do(ctx, nil, f) }
		go func() { _ = take(1, func() error { time.Sleep(time.Second); return nil }) }()
		synctest.Wait()
		require.NoError(t, take(0, func() error { return take(1, nothing) }))
	})
}

// Every mark is read back: each digit is at each of its places once.
func TestEveryTurnIsRecognised(t *testing.T) {
	var l turn.Lock
	for range 1 << 16 {
		require.NoError(t, l.Do(ctx, nil, func() error {
			if err := l.Do(ctx, nil, nothing); err != turn.ErrHeld {
				t.Fatal(err)
			}
			return nil
		}))
	}
}

// Lock is a turn, too; stop ends the wait for it.
func TestStopEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l turn.Lock
		require.NoError(t, l.Lock(ctx, nil))
		stop := make(chan struct{})
		go func() { time.Sleep(time.Minute); close(stop) }()
		require.ErrorIs(t, l.Do(ctx, stop, nothing), turn.ErrStopped)
		l.Unlock()
		require.NoError(t, l.Lock(ctx, nil))
		l.Unlock()
	})
}

// Who waits has its turn in the order in which it asked, but for those that gave up.
func TestTurnsAreInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l turn.Lock
		require.NoError(t, l.Lock(ctx, nil))
		var order []int
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, time.Minute+time.Hour*time.Duration(1-i%2))
				defer cancel()
				if err := l.Do(ctx, nil, func() error { order = append(order, i); return nil }); i%2 == 1 {
					assert.ErrorIs(t, err, context.DeadlineExceeded)
				}
			})
			synctest.Wait()
		}
		time.Sleep(2 * time.Minute)
		l.Unlock()
		wg.Wait()
		require.Equal(t, []int{0, 2, 4}, order)
	})
}

// A turn that is free costs no allocation.
func TestFreeTurnAllocatesNothing(t *testing.T) {
	var l turn.Lock
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = l.Do(ctx, nil, nothing) }))
}

func BenchmarkDo(b *testing.B) {
	var l turn.Lock
	b.ReportAllocs()
	for b.Loop() {
		_ = l.Do(ctx, nil, nothing)
	}
}
