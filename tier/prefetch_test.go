package tier_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
)

func TestPrefetch(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		require.NoError(t, put(b.memory, "here", "", 10))
		require.NoError(t, put(b.maps[1], "x", "", 10))
		errs := b.Prefetch(t.Context(), keys("here", "x", "nowhere"), 0)
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], tier.ErrPending)
		require.ErrorIs(t, errs[2], tier.ErrPending)
		synctest.Wait()
		require.Equal(t, "memory remote", b.has("x"))
		require.Zero(t, b.memory.Usage().Held, "for nobody")
		require.ErrorIs(t, b.Prefetch(t.Context(), keys("nowhere"), 0)[0], tier.ErrNotFound)
	})
}

// TestPriorities: what is asked for first, then prefetches by priority, and what is raised with those.
func TestPriorities(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) { o.Lower = o.Lower[1:]; o.MaxCalls = 2 })
		wait := make(chan struct{}, 100)
		var order []string
		b.remote.Do(func(c tiertest.Call) tiertest.Answer {
			order = append(order, c.Key.Name)
			return tiertest.Answer{Wait: wait}
		})
		l := b.lease("l")
		for _, name := range []string{"busy 1", "busy 2"} {
			l.Pin(keys(name))
			synctest.Wait()
		}
		b.Prefetch(t.Context(), keys("low"), 1)
		b.Prefetch(t.Context(), keys("raised"), 1)
		b.Prefetch(t.Context(), keys("high"), math.MaxInt)
		b.Prefetch(t.Context(), keys("raised a little"), -1)
		b.Prefetch(t.Context(), keys("raised a little"), 2)
		l.Pin(keys("asked"))
		l.Pin(keys("raised"))
		for range 100 {
			wait <- struct{}{}
			synctest.Wait()
			if b.State().Fetches == 0 {
				break
			}
		}
		require.Equal(t, []string{"busy 1", "busy 2", "raised", "asked", "high", "raised a little", "low"}, order,
			"an object keeps its place when it is raised")
	})
}

func TestPrefetchIsCancelled(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		for _, name := range []string{"x", "y"} {
			require.NoError(t, put(b.maps[0], name, "", 10))
		}
		wait := make(chan struct{})
		b.disk.Do(func(c tiertest.Call) tiertest.Answer { return tiertest.Answer{Wait: wait} })
		ctx, cancel := context.WithCancel(t.Context())
		b.Prefetch(ctx, keys("x", "y"), 0)
		l := b.lease("l")
		l.Pin(keys("y"))
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(wait)
		require.NoError(t, b.pin(l, "y")[0], "somebody else has interest")
		require.Equal(t, "disk", b.has("x"))
		require.Zero(t, b.State().Fetches)
	})
}

// TestALargeLimitOfBytesInFlight, which means none.
func TestALargeLimitOfBytesInFlight(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 8<<20, func(o *tier.Options) { o.MaxBytesInFlight, o.Lower = 1<<62, o.Lower[:1] })
		wait := make(chan struct{})
		b.disk.Do(func(c tiertest.Call) tiertest.Answer {
			if is(c, "Get") {
				return tiertest.Answer{Wait: wait}
			}
			return tiertest.Answer{}
		})
		require.NoError(t, put(b.maps[0], "x", "", 2<<20))
		require.NoError(t, put(b.maps[0], "y", "", 2<<20))
		b.lease("client").Pin(keys("x", "y"))
		synctest.Wait()
		require.Equal(t, 2, b.disk.Calls("Get"), "at a time")
		close(wait)
		synctest.Wait()
	})
}

// TestBytesInFlightAreBounded, and what is larger than the bound comes all the same, alone.
func TestBytesInFlightAreBounded(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<30, func(o *tier.Options) { o.MaxBytesInFlight = 40000; o.Lower = o.Lower[1:] })
		var mu sync.Mutex
		calls, peak := 0, 0
		level := &slow{Level: b.maps[1], do: func(n int) {
			mu.Lock()
			calls += n
			peak = max(peak, calls)
			mu.Unlock()
		}}
		b.options.Lower = []tier.Lower{{Level: level}}
		require.NoError(t, b.Close())
		b.open()
		var names []string
		for i := range 50 {
			names = append(names, fmt.Sprint(i))
			require.NoError(t, put(b.maps[1], names[i], "", int64(7000+100*i)))
		}
		names = append(names, "huge")
		require.NoError(t, put(b.maps[1], "huge", "", 100000))
		l := b.lease("l")
		for range 100 {
			for _, name := range names {
				l.Pin(keys(name))
			}
			time.Sleep(time.Second)
		}
		for _, err := range b.pin(l, names...) {
			require.NoError(t, err)
		}
		l.Release()
		up, _ := tier.PeakInFlight(b.Store)
		require.Equal(t, int64(100000), up)
		require.LessOrEqual(t, peak, 8)
		require.Greater(t, peak, 2, "several at a time")

		for i := range 50 {
			require.NoError(t, put(b.Store, fmt.Sprint("new", i), "", 3000))
		}
		time.Sleep(time.Hour)
		require.Equal(t, "memory remote", b.has("new49"))
		_, down := tier.PeakInFlight(b.Store)
		require.LessOrEqual(t, down, int64(10000))
		require.Greater(t, down, int64(6000))
	})
}

// slow is a level whose calls take a while.
type slow struct {
	tier.Level
	do func(n int)
}

func (s *slow) Get(ctx context.Context, gets []tier.Get) {
	s.do(1)
	defer s.do(-1)
	time.Sleep(time.Second)
	s.Level.Get(ctx, gets)
}

func (s *slow) Put(ctx context.Context, puts []tier.Put) {
	s.do(1)
	defer s.do(-1)
	time.Sleep(time.Second)
	s.Level.Put(ctx, puts)
}

// TestQuotasOfAStoreChange: what waits for a quota goes on when that is raised.
func TestQuotasOfAStoreChange(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<30, func(o *tier.Options) { o.Quota = 2000 })
		wait := make(chan struct{})
		b.disk.Do(func(c tiertest.Call) tiertest.Answer {
			return tiertest.Answer{Wait: map[bool]chan struct{}{true: wait}[is(c, "Get")]}
		})
		l := b.lease("l")
		var names []string
		for i := range 20 {
			names = append(names, fmt.Sprint(i))
			p := []tier.Put{{Object: tier.Object{Key: key(names[i]), Size: 1000, Tenant: "t"}, Bytes: content(names[i], 1000)}}
			b.maps[0].Put(t.Context(), p)
			require.NoError(t, p[0].Err)
			l.Pin(keys(names[i]))
		}
		synctest.Wait()
		require.Equal(t, int64(2000), b.State().InFlight)
		b.SetQuotas(map[string]int64{"t": 3000}, 0)
		synctest.Wait()
		require.Equal(t, int64(3000), b.State().InFlight)
		close(wait)
		for _, err := range b.pin(l, names...) {
			require.NoError(t, err)
		}
	})
}

// TestATenantDoesNotKeepOthersWaiting: its quota is for what is on the way, too.
func TestATenantDoesNotKeepOthersWaiting(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<30, func(o *tier.Options) { o.Quotas = map[string]int64{"greedy": 3000} })
		wait := make(chan struct{})
		b.disk.Do(func(c tiertest.Call) tiertest.Answer {
			if is(c, "Get") && c.Key.Name != "other" {
				return tiertest.Answer{Wait: wait}
			}
			return tiertest.Answer{}
		})
		l := b.lease("l")
		var names []string
		for i := range 20 {
			names = append(names, fmt.Sprint(i))
			p := []tier.Put{{Object: tier.Object{Key: key(names[i]), Size: 1000, Tenant: "greedy"}, Bytes: content(names[i], 1000)}}
			b.maps[0].Put(t.Context(), p)
			require.NoError(t, p[0].Err)
			l.Pin(keys(names[i]))
		}
		require.NoError(t, put(b.maps[0], "other", "", 1000))
		synctest.Wait()
		require.LessOrEqual(t, b.State().InFlight, int64(3000))
		require.NoError(t, b.pin(b.lease("m"), "other")[0])
		close(wait)
		for _, err := range b.pin(l, names...) {
			require.NoError(t, err)
		}
	})
}
