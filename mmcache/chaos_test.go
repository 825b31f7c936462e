package mmcache_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/mmcache"
)

var chaos = flag.Duration("chaos", 500*time.Millisecond, "how long TestChaos runs in each mode")

// errMine is what producers and sends of TestChaos fail and panic with.
var errMine = errors.New("on purpose")

// TestChaos has many goroutines give up at random moments, fail and panic in
// producers and in send, clear, reset, fence and hold. Nothing may hang, no memory
// exceed its bound, and nothing be left at the end.
func TestChaos(t *testing.T) {
	o := mmcache.Options{Capacity: 256 << 10, InFlight: 200 << 10, MaxItem: 32 << 10, Shared: mmcache.SharedOptions{MaxObject: 32 << 10}}
	forEachMode(t, o, func(t *testing.T, c mmcache.Cache) {
		w := &chaosWorld{t: t, c: c, limit: o.InFlight}
		w.run(*chaos, func() {})
		passFence(c)
		requireBalance(t, c, 0)
		s := c.Stats()
		require.Equal(t, []int64{0, 0, 0, 0}, []int64{s.InFlight, s.Quarantined, s.Holds, s.Waiting})
		require.NoError(t, c.Clear(ctx, func(lrusync.Envelope) error { return nil }), "a request or a hold has leaked")
		require.Zero(t, c.Stats().CachedItems)
		require.NoError(t, c.Shutdown(ctx))
		require.Positive(t, s.Committed)
		t.Logf("%d steps, %d requests, %d committed, %d waits, %d panics, %d clears", w.steps.Load(), s.Begun, s.Committed, s.Waits, w.panics.Load(), s.Epoch)
	})
}

// TestAbandonAtAnyMoment abandons the cache under the same load, again and again.
func TestAbandonAtAnyMoment(t *testing.T) {
	o := mmcache.Options{Capacity: 256 << 10, InFlight: 200 << 10, MaxItem: 32 << 10, Shared: mmcache.SharedOptions{MaxObject: 32 << 10}}
	for end := time.Now().Add(*chaos); ; {
		forEachMode(t, o, func(t *testing.T, c mmcache.Cache) {
			w := &chaosWorld{t: t, c: c, limit: o.InFlight}
			w.run(20*time.Millisecond, func() {
				if rand.IntN(2) == 0 {
					short, cancel := context.WithTimeout(ctx, time.Millisecond)
					defer cancel()
					_ = c.Shutdown(short)
				}
				assert.NoError(t, c.Abandon())
				if c.Mode() == "shm" {
					requireNothingLeft(t)
				}
			})
			requireBalance(t, c, 0)
			s := c.Stats()
			require.Equal(t, []int64{0, 0, 0}, []int64{s.InFlight, s.Holds, s.Waiting})
		})
		if t.Failed() || time.Now().After(end) {
			return
		}
	}
}

// run has goroutines do steps for a while, and calls f in the middle.
func (w *chaosWorld) run(d time.Duration, f func()) {
	end := time.Now().Add(d)
	var wg sync.WaitGroup
	for g := range 12 {
		rnd := rand.New(rand.NewPCG(uint64(g), rand.Uint64()))
		wg.Go(func() {
			for i := 0; time.Now().Before(end) && !w.t.Failed(); i++ {
				w.step(rnd, fmt.Sprint(g, "-", i))
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for w.steps.Load() < 100 && !w.t.Failed() && time.Now().Before(end) {
		runtime.Gosched()
	}
	f()
	select {
	case <-done:
	case <-time.After(d + 3*time.Minute):
		for _, h := range w.c.Holders() {
			w.t.Log("open: ", h)
		}
		panic("it hangs")
	}
}

type chaosWorld struct {
	t             *testing.T
	c             mmcache.Cache
	limit         int64
	steps, panics atomic.Int64
}

func (w *chaosWorld) step(rnd *rand.Rand, id string) {
	c := w.c
	w.steps.Add(1)
	ctx, cancel := context.WithTimeout(ctx, time.Duration(rnd.IntN(20000))*time.Microsecond)
	defer cancel()
	used := c.Stats().InFlight
	assert.LessOrEqual(w.t, used, w.limit)
	assert.GreaterOrEqual(w.t, used, int64(0))
	key := func() string { return fmt.Sprint("k", rnd.IntN(30)) }
	switch rnd.IntN(40) {
	case 0:
		fail := rnd.IntN(3) == 0
		_ = c.Clear(ctx, func(lrusync.Envelope) error {
			if fail {
				return errMine
			}
			return nil
		})
	case 1:
		passFence(c)
	case 2:
		if s, ok := c.(*mmcache.Shared); ok {
			if err := s.ResetReaders(1 + rnd.IntN(2)); err != nil {
				assert.ErrorIs(w.t, err, fs.ErrClosed)
			}
		}
	case 3:
		if h, ok, err := c.Lookup(ctx, key()); err == nil && ok {
			if r, err := h.Begin(ctx, id, mmcache.Want{Key: h.Item.Key, Bytes: int64(rnd.IntN(16000))}); err == nil {
				r.Rollback()
			}
			h.Release()
		}
	case 4:
		c.Invalidate(key())
	case 5:
		assert.NoError(w.t, c.CheckStructure())
	default:
		var wants []mmcache.Want
		for range 1 + rnd.IntN(3) {
			wants = append(wants, mmcache.Want{Key: key(), Bytes: int64(rnd.IntN(3) * 16000), Modality: "image"})
		}
		w.request(ctx, rnd, id, wants)
	}
}

func (w *chaosWorld) request(ctx context.Context, rnd *rand.Rand, id string, wants []mmcache.Want) {
	r, err := w.c.Begin(ctx, id, wants...)
	if err != nil {
		assert.True(w.t, errors.Is(err, context.DeadlineExceeded) || errors.Is(err, fs.ErrClosed), "%v", err)
		return
	}
	defer r.Rollback()
	defer func() {
		if e := recover(); e != nil {
			w.panics.Add(1)
			if e != errMine {
				panic(e)
			}
		}
	}()
	for _, x := range wants {
		n, fate, late := rnd.IntN(20000)+1, rnd.IntN(12), rnd.IntN(12) == 0
		_, err := r.Item(ctx, x.Key, func(ctx context.Context, b *mmcache.Builder) error {
			switch fate {
			case 0:
				panic(errMine)
			case 1:
				return errMine
			case 2:
				<-ctx.Done()
				return ctx.Err()
			}
			if err := b.Layout(layout(n), nil); err != nil {
				return err
			}
			if late {
				panic(errMine)
			}
			copy(b.Tensor("pixel_values"), content(x.Key, n))
			return nil
		})
		if err != nil {
			return
		}
	}
	fate := rnd.IntN(30)
	err = r.Commit(ctx, func(mmcache.Batch) error {
		switch {
		case fate < 6:
			return errMine
		case fate == 6:
			panic(errMine)
		case fate == 7:
			w.c.Stats()
			r.Abort()
		}
		return nil
	})
	switch {
	case err != nil:
	case w.c.Mode() == "lru" && fate == 8:
		defer r.Finish() // also when a producer panics
		_ = r.Missed(ctx, []string{wants[0].Key}, sent)
	case fate%2 == 0:
		r.Finish()
	default:
		r.Abort()
	}
}
