package engine_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/engine/enginetest"
	"github.com/ringcache/ringcache/mmcache"
)

var stressTime = flag.Duration("stress", 2*time.Second, "how long TestStress goes on in each mode")

// TestStress: clients that cancel, close and read slowly, engines that go in every way and come
// back. Every stream ends, every answer is right, no item stays in use, and the heap is
// bounded by what is live: it is looked at between two engines, when no request is under way.
func TestStress(t *testing.T) {
	for _, m := range []string{"shm", "lru"} {
		t.Run(m, func(t *testing.T) { stress(t, m) })
	}
}

func stress(t *testing.T, m string) {
	const (
		clients   = 8
		heapBound = 8 << 20 // what waits for slow readers is a third of it at most
	)
	r := newRig(t, setup{mode: m, workers: 2, capacity: 16 * 1024, engine: func(o *enginetest.Options) { o.MaxNumSeqs = 16 }})
	ctx, cancel := context.WithTimeout(context.Background(), *stressTime+10*time.Minute) // a guard against hanging
	defer cancel()
	r.ctx = ctx
	var (
		work  sync.RWMutex // held by clients for each request, by the test to have none
		over  atomic.Bool
		wait  sync.WaitGroup
		ended [3]atomic.Int64
	)
	defer wait.Wait()
	defer over.Store(true)
	for i := range clients {
		wait.Go(func() {
			c := &stressClient{r: r, rnd: rand.New(rand.NewPCG(uint64(i), 7)), ended: &ended}
			for n := 0; !over.Load(); n++ {
				work.RLock()
				err := c.request(ctx, fmt.Sprintf("c%d.%d", i, n))
				work.RUnlock()
				if err != nil {
					t.Error(err)
					break
				}
			}
			if err := c.readAll(); err != nil {
				t.Error(err)
			}
		})
	}
	quiet := func() int64 { // the heap when no request is under way
		work.Lock()
		defer work.Unlock()
		r.until(func() bool { return r.Stats().InFlight == 0 })
		return heap()
	}
	rnd := rand.New(rand.NewPCG(0, 7))
	engines, first := 0, int64(0)
	for began := time.Now(); !t.Failed() && (engines < 16 || time.Since(began) < *stressTime); engines++ {
		time.Sleep(time.Duration(rnd.IntN(50)) * time.Millisecond) // for the clients; nothing depends on it
		if rnd.IntN(4) == 0 {
			require.NoError(t, r.ClearItems(ctx))
		}
		if engines%8 == 0 {
			if now := quiet(); first == 0 {
				first = now
			} else {
				require.Less(t, now-first, int64(heapBound), "after %d engines", engines)
			}
		}
		gone, _ := r.Gone()
		switch rnd.IntN(4) {
		case 0:
			r.e.Kill()
		case 1:
			r.e.Die()
		case 2:
			r.e.Deafen()
			engine.Watch(r.Client, 10*time.Millisecond)
			wait.Go(func() { _ = r.Check(ctx) }) // it is asked only when it should have said something
		case 3:
			require.NoError(t, engine.SendRaw(r.Client, "\x00", "\x91"))
		}
		select {
		case <-gone:
		case <-ctx.Done():
			t.Fatal("an engine that is gone is not noticed")
		}
		r.e.Kill()
		require.NoError(t, r.start())
	}
	over.Store(true)
	wait.Wait()
	require.False(t, t.Failed())
	r.drained()
	st, cs := r.Stats(), r.cache.Stats()
	require.Equal(t, st.Requests, st.Finished+st.Failed)
	require.Zero(t, cs.InFlight)
	require.Zero(t, cs.CachedItems)
	require.Equal(t, int64(engines)+1, st.Starts)
	for how := range ended {
		require.Positive(t, ended[how].Load(), "no stream ended in the way %d", how)
	}
}

// stressClient makes one request after the other.
type stressClient struct {
	r     *rig
	rnd   *rand.Rand
	slow  []*slowStream // that nobody has read yet
	ended *[3]atomic.Int64
}

// The ways in which a stream ends.
const (
	byItself = iota
	byClient
	byEngine
)

type slowStream struct {
	*engine.Stream
	id     string
	cancel context.CancelFunc
	want   []uint32
}

// request makes a request, and reports what should not have been.
func (c *stressClient) request(ctx context.Context, id string) error {
	ctx, cancel := context.WithCancel(ctx)
	var keys []string
	var wants []mmcache.Want
	for range c.rnd.IntN(3) {
		k := fmt.Sprint("k", c.rnd.IntN(12))
		keys, wants = append(keys, k), append(wants, mmcache.Want{Key: k, Bytes: 4096, Modality: "image"})
	}
	p, at := prompt(len(keys))
	n, most := 1+c.rnd.IntN(3), 1+c.rnd.IntN(40)
	q := engine.Request{ID: id, Prompt: p, Placeholders: at, Params: map[string]any{"n": n, "max_tokens": most}}
	if c.rnd.IntN(4) == 0 {
		defer time.AfterFunc(time.Duration(c.rnd.IntN(2000))*time.Microsecond, cancel).Stop()
	}
	s, err := c.generate(ctx, q, keys, wants)
	if err != nil {
		cancel()
		return c.allowed(err)
	}
	st := &slowStream{s, id, cancel, want(most, keys...)}
	switch c.rnd.IntN(4) {
	case 0:
		for range c.rnd.IntN(3) {
			_, _ = s.Next(ctx)
		}
		s.Close()
		st.want = nil // some have been read
	case 1:
		if c.slow = append(c.slow, st); len(c.slow) <= 4 {
			return nil
		}
		st, c.slow = c.slow[0], c.slow[1:]
	}
	return c.read(st)
}

func (c *stressClient) generate(ctx context.Context, q engine.Request, keys []string, wants []mmcache.Want) (_ *engine.Stream, err error) {
	if len(wants) > 0 {
		if q.Items, err = c.r.cache.Begin(ctx, q.ID, wants...); err != nil {
			return nil, err
		}
		defer q.Items.Rollback()
		for _, k := range keys {
			if _, err := q.Items.Item(ctx, k, mmcache.Ready(picture(k, rows), nil)); err != nil {
				return nil, err
			}
		}
	}
	return c.r.Generate(ctx, q)
}

// read reads a stream to its end.
func (c *stressClient) read(st *slowStream) error {
	defer st.cancel()
	var got [3][]uint32
	for {
		o, err := st.Next(context.Background())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return c.allowed(err)
		}
		got[o.Index] = append(got[o.Index], o.TokenIDs...)
	}
	c.ended[byItself].Add(1)
	for i, tokens := range got {
		if st.want != nil && tokens != nil && fmt.Sprint(tokens) != fmt.Sprint(st.want) {
			return fmt.Errorf("request %s, child %d: %v, not %v", st.id, i, tokens, st.want)
		}
	}
	return nil
}

func (c *stressClient) readAll() (err error) {
	for _, st := range c.slow {
		err = errors.Join(err, c.read(st))
	}
	return err
}

// allowed reports whether a stream may end so.
func (c *stressClient) allowed(err error) error {
	switch {
	case errors.Is(err, engine.ErrNotRunning):
		time.Sleep(100 * time.Microsecond) // or it would be asked all the time
	case errors.Is(err, engine.ErrDead):
		c.ended[byEngine].Add(1)
	case errors.Is(err, context.Canceled), errors.Is(err, engine.ErrAborted):
		c.ended[byClient].Add(1)
	default:
		return err
	}
	return nil
}
