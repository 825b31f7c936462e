package mmcache_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/serde"
)

var requests = flag.Int("requests", 1000, "requests of each goroutine in TestManyRequests")

const (
	goroutines = 8
	capacity   = 16 << 10
	inFlight   = 24 << 10
)

// keySize is the bytes of a key's item, always the same for the same key.
func keySize(k int) int { return 64 + (k*k*37)%1500 }

// peer is the other end: it takes a batch as the engine does, checks every byte,
// and returns what it lacks.
type peer interface {
	take(b mmcache.Batch) (missing []string, drift *lrusync.Drift)
}

// TestManyRequests has many goroutines make, roll back, abort and finish
// requests of all kinds, with a real reader or receiver on the other end. No
// request may fail, no byte be wrong, no memory exceed its bound.
func TestManyRequests(t *testing.T) {
	o := mmcache.Options{Capacity: capacity, InFlight: inFlight, Shared: mmcache.SharedOptions{MaxObject: 2 << 10}}
	forEachMode(t, o, func(t *testing.T, c mmcache.Cache) {
		w := &world{t: t, c: c}
		switch c.Mode() {
		case "lru":
			w.peer = &lossyEngine{engine: newEngine(t, capacity), rnd: rand.New(rand.NewPCG(7, 7))}
		case "shm":
			w.peer = newWorker(t, c.(*mmcache.Shared))
		default:
			w.peer = inline{t}
		}
		events, stop := c.Subscribe(1 << 10)
		seen := make(chan int)
		go func() {
			n := 0
			for range events {
				n++
			}
			seen <- n
		}()
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(g), 1))
				for i := range *requests {
					if t.Failed() {
						return
					}
					w.request(rnd, fmt.Sprint(g, "-", i))
				}
			})
		}
		wg.Wait()
		stop()
		n := <-seen
		s := c.Stats()
		require.EqualValues(t, goroutines**requests, s.Finished+s.Aborted+s.RolledBack)
		require.Equal(t, s.Committed, s.Finished+s.Aborted)
		require.Zero(t, s.InFlight)
		if c.Mode() != "none" {
			require.Positive(t, s.Hits)
			require.Positive(t, n, "events")
			require.LessOrEqual(t, s.CachedBytes, int64(capacity))
			require.Zero(t, s.Quarantined)
		}
		if c.Mode() == "lru" {
			require.Positive(t, s.Repaired)
			require.Positive(t, s.Resent)
		}
		t.Logf("%d requests, %d of %d hits, %d made, %d coalesced, %d refused, %d waits, %d resent, %d repaired, most in flight %d of %d",
			goroutines**requests, s.Hits, s.Total, s.Produced, s.Coalesced, s.RefusedFull+s.RefusedTooLarge+s.RefusedInUse,
			s.Waits, s.Resent, s.Repaired, w.most.Load(), inFlight)
	})
}

type world struct {
	t    *testing.T
	c    mmcache.Cache
	peer peer
	live atomic.Int64 // bytes on the heap in the hands of requests
	most atomic.Int64
}

func (w *world) hold(n int64) {
	now := w.live.Add(n)
	assert.LessOrEqual(w.t, now, int64(inFlight), "the budget is exceeded")
	for m := w.most.Load(); now > m && !w.most.CompareAndSwap(m, now); m = w.most.Load() {
	}
}

func (w *world) request(rnd *rand.Rand, id string) {
	t := w.t
	var ws []mmcache.Want
	for range 1 + rnd.IntN(5) {
		k := min(rnd.IntN(40), rnd.IntN(40))
		ws = append(ws, want(keySize(k), fmt.Sprint("k", k))...)
	}
	r, err := w.c.Begin(ctx, id, ws...)
	if !assert.NoError(t, err) {
		return
	}
	defer r.Rollback()
	held := map[string]int64{} // on the heap, by this request
	letGo := func() {          // before the request ends, and so does its claim
		for _, n := range held {
			w.live.Add(-n)
		}
		clear(held)
	}
	defer letGo()
	for _, x := range ws {
		var k int
		_, _ = fmt.Sscanf(x.Key, "k%d", &k)
		n := keySize(k)
		it, err := r.Item(ctx, x.Key, func(ctx context.Context, b *mmcache.Builder) error {
			return produceItem(x.Key, n)(ctx, b)
		})
		if !assert.NoError(t, err) {
			return
		}
		onHeap := it.Refused != nil || w.c.Mode() == "none" || w.c.Mode() == "lru" && !it.Hit
		if onHeap && held[x.Key] == 0 {
			held[x.Key] = int64(n)
			w.hold(int64(n))
		}
	}
	if rnd.IntN(10) == 0 {
		return
	}
	if rnd.IntN(50) == 0 {
		w.c.Invalidate(ws[0].Key)
	}
	var missing []string
	var drift *lrusync.Drift
	send := func(b mmcache.Batch) error {
		missing, drift = w.peer.take(b)
		return nil
	}
	if !assert.NoError(t, r.Commit(ctx, send)) {
		return
	}
	for attempt := 0; drift != nil || missing != nil; attempt++ {
		if drift != nil {
			w.c.(*mmcache.Mirrored).Repair(*drift)
		}
		if missing == nil {
			break
		}
		if !assert.Less(t, attempt, 50, "sent again and again") || !assert.NoError(t, r.Missed(ctx, missing, send)) {
			return
		}
	}
	letGo()
	if rnd.IntN(20) == 0 {
		r.Abort()
		passFence(w.c) // the other end has read everything before Commit returned
	} else {
		r.Finish()
	}
}

// inline takes items that came along.
type inline struct{ t *testing.T }

func (i inline) take(b mmcache.Batch) ([]string, *lrusync.Drift) {
	for _, w := range b.Items {
		assertContent(i.t, w.Key, w.Item())
	}
	return nil, nil
}

// lossyEngine is a receiver behind a link that loses a request now and then; who
// sent it finds that everything is missing.
type lossyEngine struct {
	*engine
	rnd *rand.Rand // guarded by the order of the tickets
}

func (e *lossyEngine) take(b mmcache.Batch) ([]string, *lrusync.Drift) {
	if e.rnd.IntN(100) == 0 {
		var all []string
		for _, w := range b.Items {
			all = append(all, w.Key)
		}
		return all, nil
	}
	res := e.engine.take(b)
	if res.Missing == nil {
		for i, w := range b.Items {
			assertContent(e.t, w.Key, res.Values[i])
		}
	}
	return res.Missing, res.Drift
}

// worker reads what handles name, as vLLM's workers do: touch all, get each.
type worker struct {
	t *testing.T
	r *objstore.Reader
}

type mutex chan struct{}

func (m mutex) Lock(ctx context.Context) error {
	select {
	case m <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m mutex) Unlock() error { <-m; return nil }

func newWorker(t *testing.T, c *mmcache.Shared) *worker {
	r, err := objstore.Open(c.Name(), objstore.ReaderOptions{Dir: segmentDir(t), RingSize: capacity, Readers: 1, Lock: make(mutex, 1), LockTimeout: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return &worker{t, r}
}

func (w *worker) take(b mmcache.Batch) ([]string, *lrusync.Drift) {
	for _, i := range b.Items {
		if i.Handle != nil {
			assert.NoError(w.t, w.r.Touch(ctx, i.Key, *i.Handle))
		}
	}
	for _, i := range b.Items {
		if i.Handle == nil {
			assertContent(w.t, i.Key, i.Item())
			continue
		}
		v, err := w.r.Get(i.Key, *i.Handle)
		if !assert.NoError(w.t, err) {
			return nil, nil
		}
		assertContent(w.t, i.Key, v.Value().(*serde.Item))
		assert.NoError(w.t, v.Check())
		assert.NoError(w.t, v.Release())
	}
	return nil, nil
}
