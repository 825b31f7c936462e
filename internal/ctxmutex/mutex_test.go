package ctxmutex_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/ctxmutex"
)

var ctx = context.Background()

func nothing() error { return nil }

// do runs f while it has the mutex.
func do(ctx context.Context, m *ctxmutex.Mutex, stop <-chan struct{}, f func() error) error {
	if err := m.Lock(ctx, stop); err != nil {
		return err
	}
	defer m.Unlock()
	return f()
}

func TestOthersWait(t *testing.T) {
	l, running := new(ctxmutex.Mutex), 0
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 200 {
				assert.NoError(t, do(ctx, l, nil, func() error {
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

// Whoever has one mutex can wait for another.
func TestTwoMutexes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := new(ctxmutex.Mutex), new(ctxmutex.Mutex)
		both := func() error { return do(ctx, a, nil, func() error { return do(ctx, b, nil, nothing) }) }
		go func() { _ = do(ctx, b, nil, func() error { time.Sleep(time.Second); return nil }) }()
		synctest.Wait()
		require.NoError(t, both())
	})
}

func TestWaitEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(ctxmutex.Mutex)
		go func() { _ = do(ctx, l, nil, func() error { time.Sleep(time.Minute); return nil }) }()
		synctest.Wait()
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		require.ErrorIs(t, do(short, l, nil, nothing), context.DeadlineExceeded)
		synctest.Wait()
		time.Sleep(time.Hour)
	})
}

func TestPanicUnlocks(t *testing.T) {
	l := new(ctxmutex.Mutex)
	require.Panics(t, func() { _ = do(ctx, l, nil, func() error { panic("in f") }) })
	require.NoError(t, do(ctx, l, nil, nothing))
}

// stop ends the wait.
func TestStopEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(ctxmutex.Mutex)
		require.NoError(t, l.Lock(ctx, nil))
		stop := make(chan struct{})
		go func() { time.Sleep(time.Minute); close(stop) }()
		require.ErrorIs(t, do(ctx, l, stop, nothing), ctxmutex.ErrStopped)
		l.Unlock()
		require.NoError(t, l.Lock(ctx, nil))
		l.Unlock()
	})
}

// Whoever waits has the mutex in the order in which they asked, but for those that gave up.
func TestWaitersAreInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(ctxmutex.Mutex)
		require.NoError(t, l.Lock(ctx, nil))
		var order []int
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, time.Minute+time.Hour*time.Duration(1-i%2))
				defer cancel()
				if err := do(ctx, l, nil, func() error { order = append(order, i); return nil }); i%2 == 1 {
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

// A mutex that is free costs no allocation.
func TestFreeMutexAllocatesNothing(t *testing.T) {
	l := new(ctxmutex.Mutex)
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = do(ctx, l, nil, nothing) }))
}

func BenchmarkFree(b *testing.B) {
	l := new(ctxmutex.Mutex)
	b.ReportAllocs()
	for b.Loop() {
		_ = do(ctx, l, nil, nothing)
	}
}
