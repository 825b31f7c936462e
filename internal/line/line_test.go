package line_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/line"
)

var errFull = errors.New("full")

// room is bytes that callers wait for.
type room struct {
	mu      sync.Mutex
	waiters line.Waiters
	other   line.Line // of those who wait for something else
	free    int64
	got     []string
	roles   []line.Role
	gone    map[string]error // keys for which there is nothing left to wait for
}

// start lets a caller wait for n bytes, in the line of others if l is not nil.
func (r *room) start(ctx context.Context, key string, n int64, l *line.Line) <-chan error {
	done := make(chan error, 1)
	go func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		w := &line.Waiter{Need: n, Key: key}
		done <- r.waiters.Wait(ctx, &r.mu, w, errFull, line.Attempt{
			Line:  func(error) *line.Line { return l },
			Retry: func(err error) bool { return errors.Is(err, errFull) },
			Check: func() error { return r.gone[key] },
			Try: func(as line.Role) error {
				r.roles = append(r.roles, as)
				if n > r.free {
					return errFull
				}
				r.free -= n
				r.got = append(r.got, key)
				return nil
			},
		})
	}()
	synctest.Wait()
	return done
}

func (r *room) add(n int64) {
	r.mu.Lock()
	r.free += n
	r.waiters.Wake(r.waiters.Main.First())
	r.mu.Unlock()
	synctest.Wait()
}

func (r *room) check(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiters.Check([]*line.Line{&r.waiters.Main, &r.other}, func(format string, args ...any) { t.Errorf(format, args...) })
}

// Only the first one tries, however little the others need, and whoever leaves wakes the
// next one.
func TestFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &room{}
		var done []<-chan error
		for i, n := range []int64{30, 10, 20} {
			done = append(done, r.start(t.Context(), fmt.Sprint(i), n, &r.waiters.Main))
		}
		r.check(t)
		require.Equal(t, 3, r.waiters.Len())
		require.EqualValues(t, 30, r.waiters.Main.Wanted())
		r.add(25)
		require.Empty(t, r.got)
		r.add(20)
		require.Equal(t, []string{"0", "1"}, r.got)
		r.check(t)
		r.add(100)
		require.Equal(t, []string{"0", "1", "2"}, r.got)
		for _, d := range done {
			require.NoError(t, <-d)
		}
		require.Zero(t, r.waiters.Len())
		require.True(t, r.waiters.Main.Empty())
		r.check(t)
	})
}

// One who gives up, or finds that there is nothing left to wait for, wakes the next.
func TestLeavingWakesTheNext(t *testing.T) {
	for name, leave := range map[string]func(r *room, cancel func()){
		"context": func(_ *room, cancel func()) { cancel() },
		"check": func(r *room, _ func()) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.gone = map[string]error{"first": errors.New("it is there")}
			r.waiters.WakeKey("first")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &room{}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				first := r.start(ctx, "first", 30, &r.waiters.Main)
				second := r.start(t.Context(), "second", 10, &r.waiters.Main)
				r.add(10)
				require.Empty(t, second)
				leave(r, cancel)
				err := <-first
				require.Error(t, err)
				if name == "context" {
					require.ErrorIs(t, err, context.Canceled)
					require.ErrorIs(t, err, errFull, "what it waited for")
				}
				require.NoError(t, <-second)
				r.check(t)
			})
		})
	}
}

// The first one also looks by itself, less and less often.
func TestFirstPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &room{}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		first := r.start(ctx, "first", 30, &r.waiters.Main)
		second := r.start(ctx, "second", 30, &r.waiters.Main)
		other := r.start(ctx, "other", 40, &r.other)
		time.Sleep(time.Second)
		synctest.Wait()
		r.mu.Lock()
		require.InDelta(t, 2*16, r.waiters.Polls, 4, "5, 10, 20, 40 and then 80 ms")
		for _, as := range r.roles {
			require.Contains(t, []line.Role{line.Polling, line.Polling | line.OfTenant}, as)
		}
		r.free = 35 // without a word
		r.mu.Unlock()
		time.Sleep(80 * time.Millisecond)
		require.NoError(t, <-first)
		require.ErrorIs(t, <-second, context.DeadlineExceeded)
		require.ErrorIs(t, <-other, context.DeadlineExceeded)
		r.check(t)
	})
}

// Callers that do not wait pass, for a room full of bytes, and then as many are refused.
func TestPassingIsInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const room100 = 100
		r := &room{}
		l := &r.waiters.Main
		for range 1000 {
			require.True(t, l.MayPass(10, room100), "nobody waits")
			l.Passed(10)
		}
		ctx, cancel := context.WithCancel(t.Context())
		first := r.start(ctx, "first", 50, l)
		for turn := range 3 {
			passed, refused := 0, 0
			for l.MayPass(10, room100) {
				l.Passed(10)
				passed++
			}
			for refused = 1; !l.MayPass(10, room100); refused++ {
				require.Less(t, refused, 100)
			}
			require.Equal(t, 10, passed+min(turn, 1), "the last look of a turn was one of the next")
			require.Equal(t, 10, refused)
			l.Passed(10)
		}
		cancel()
		require.Error(t, <-first)
		r.check(t)
		require.True(t, line.Passing.Passes())
		require.True(t, (line.First | line.OfTenant).Passes())
		require.False(t, line.First.Passes() || line.Polling.Passes())
	})
}
