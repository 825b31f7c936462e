//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/mmcache"
)

// ringOf is a ring that holds so many of LLaVA's images.
func ringOf(images int) int { return images * (37_632 + 512) }

// pick returns n inputs that begin with a word, in random order and with
// repetitions.
func (r *reference) pick(t testing.TB, rnd *rand.Rand, n int, what string) (out []*input) {
	for range n {
		out = append(out, r.named(t, fmt.Sprint(what, rnd.IntN(distinct))))
	}
	return out
}

// TestLoad: 1,000 requests of 8 clients for 200 images through a ring that holds
// 20, then 200 aborts at random moments.
func TestLoad(t *testing.T) {
	for _, tp := range []int{1, 2} {
		t.Run(fmt.Sprintf("tp%d", tp), func(t *testing.T) {
			r := newRig(t, setup{tp: tp, mode: "shm", ring: ringOf(20)})
			rnd := rand.New(rand.NewPCG(uint64(tp), 7))
			ins := r.ref.pick(t, rnd, 1000, "image")
			began := time.Now()
			made := r.everything(8, ins)
			st := r.cache.Stats()
			require.Equal(t, engine.Stats{Requests: 1000, Finished: 1000, Starts: 1}, r.Stats())
			t.Logf("1000 requests in %.0f s: no wrong token, no error; %d images made, %d of them sent inline for want of room",
				time.Since(began).Seconds(), made, st.RefusedFull)
			r.balanced()

			aborts(r, rnd, 200)
			// All of the ring can be used by others at once.
			full := r.cache.Stats().RefusedFull
			for i := range 60 {
				r.right(r.ref.named(t, fmt.Sprint("image", 140+i)))
			}
			require.Equal(t, full, r.cache.Stats().RefusedFull, "something is pinned")
			r.drained()
			r.sound()
		})
	}
}

// aborts has some requests aborted, half of them right behind their ADD, among
// others that are not.
func aborts(r *rig, rnd *rand.Rand, n int) {
	r.t.Helper()
	var wait sync.WaitGroup
	stop := make(chan struct{})
	wait.Go(func() { // others go on meanwhile
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			in := r.ref.named(r.t, fmt.Sprint("image", i%distinct))
			if got, _, err := r.ask(in); err != nil || fmt.Sprint(got) != fmt.Sprint(in.Tokens) {
				r.t.Errorf("%s beside aborts: %v, %v", in.Name, got, err)
				return
			}
		}
	})
	behind, before := 0, r.Stats()
	for i, in := range r.ref.pick(r.t, rnd, n, "image") {
		q, _, err := r.request(in)
		require.NoError(r.t, err)
		q.Params["max_tokens"] = 200
		ctx, cancel := context.WithCancel(r.ctx)
		s, err := r.Generate(ctx, q)
		require.NoError(r.t, err)
		switch i % 4 {
		case 0, 1: // right behind
			behind++
		case 2:
			time.Sleep(time.Duration(rnd.IntN(20_000)) * time.Microsecond)
		case 3:
			for range 1 + rnd.IntN(8) {
				if _, err := s.Next(r.ctx); err != nil {
					break
				}
			}
		}
		cancel()
		for err == nil {
			_, err = s.Next(r.ctx)
		}
		require.ErrorIs(r.t, err, context.Canceled)
	}
	close(stop)
	wait.Wait()
	require.Eventually(r.t, func() bool { return r.cache.Stats().Quarantined == 0 }, 5*time.Minute, time.Millisecond)
	st, err := r.cache.(*mmcache.Shared).State()
	require.NoError(r.t, err)
	unread := 0
	for _, o := range st.Objects {
		if o.WrittenOff != 0 || o.Reads != o.Uses*int64(st.Readers) {
			unread++
		}
	}
	after := r.Stats()
	r.t.Logf("%d aborts, %d right behind ADD; %d fences; %d objects of the ring were issued to requests that never read them: upstream pins those for ever",
		after.Failed-before.Failed, behind, after.Fences-before.Fences, unread)
	require.Equal(r.t, int64(n), after.Failed-before.Failed)
}

// TestChildren: requests for several sequences, through a ring under pressure.
func TestChildren(t *testing.T) {
	r := newRig(t, setup{tp: 2, mode: "shm", ring: ringOf(8)})
	var wait sync.WaitGroup
	var sequences atomic.Int64
	for c := range 6 {
		wait.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(c), 3))
			for range 60 {
				in := r.ref.named(t, fmt.Sprint("image", rnd.IntN(40)))
				q, _, err := r.request(in)
				if err != nil {
					t.Error(err)
					return
				}
				// vLLM wants no n with a temperature of 0; the best of one token is as greedy.
				q.Params["n"], q.Params["temperature"], q.Params["top_k"] = 1+rnd.IntN(4), 1.0, 1
				s, err := r.Generate(r.ctx, q)
				if err != nil {
					q.Items.Rollback()
					t.Error(err)
					return
				}
				got, err := s.Collect()
				for _, g := range got {
					if fmt.Sprint(g) != fmt.Sprint(in.Tokens) {
						t.Errorf("%s: got %v, want %v, error %v", in.Name, g, in.Tokens, err)
					}
					sequences.Add(1)
				}
			}
		})
	}
	wait.Wait()
	st := r.cache.Stats()
	t.Logf("360 requests for %d sequences, %d images made for a ring of 8, %d inline", sequences.Load(), st.Produced,
		st.RefusedFull)
	r.balanced()
	r.drained()
	r.sound()
}

// TestKilled: the engine is killed in the midst of requests, and started again.
func TestKilled(t *testing.T) {
	for _, tp := range []int{1, 2} {
		t.Run(fmt.Sprintf("tp%d", tp), func(t *testing.T) {
			r := newRig(t, setup{tp: tp, mode: "shm"})
			warm := r.ref.all()
			r.everything(8, warm)
			for range 2 {
				var wait sync.WaitGroup
				running := make(chan struct{}, 8)
				var dead, other atomic.Int64
				for c := range 8 {
					wait.Go(func() {
						for i := c; ; i++ {
							q, _, err := r.request(r.ref.named(t, fmt.Sprint("image", i%distinct)))
							if err == nil {
								q.Params["max_tokens"] = 4000 - len(q.Prompt)
								var s *engine.Stream
								if s, err = r.Generate(r.ctx, q); err != nil {
									q.Items.Rollback()
								} else if _, err = s.Next(r.ctx); err == nil {
									running <- struct{}{}
									_, err = s.Collect()
								}
							}
							switch {
							case errors.Is(err, engine.ErrDead):
								dead.Add(1)
								return
							case err != nil:
								other.Add(1)
								t.Error(err)
								return
							}
						}
					})
				}
				for range 4 { // max_num_seqs
					<-running
				}
				require.NoError(t, syscall.Kill(r.enginePid(), syscall.SIGKILL))
				wait.Wait()
				gone, why := r.Gone()
				<-gone
				require.ErrorIs(t, why(), engine.ErrDead)
				require.Equal(t, int64(8), dead.Load(), "every client was told")
				t.Logf("8 clients were told: %v", why())

				began := time.Now()
				require.NoError(t, r.Start(r.ctx))
				t.Logf("ready again after %.0f s", time.Since(began).Seconds())
				made := r.everything(8, warm)
				require.Zero(t, made, "the cache is warm")
				r.balanced()
			}
			r.drained()
			r.sound()
		})
	}
}

// TestResets: caches are reset, on both sides, under requests that need what is in
// them.
func TestResets(t *testing.T) {
	r := newRig(t, setup{tp: 2, mode: "shm", ring: ringOf(20),
		set: []string{"enable_prefix_caching=true", "block_size=32"}})
	rnd := rand.New(rand.NewPCG(5, 5))
	ended := make(chan struct{})
	inputs := r.ref.pick(t, rnd, 400, "image")
	go func() {
		defer close(ended)
		r.everything(6, inputs)
	}()
	resets := 0
	for running := true; running; resets++ {
		require.NoError(t, r.ClearItems(r.ctx))
		require.NoError(t, r.ResetEncoderCache(r.ctx))
		_, err := r.Call(r.ctx, "reset_prefix_cache") // not while it is in use
		require.NoError(t, err)
		select {
		case <-ended:
			running = false
		case <-time.After(50 * time.Millisecond):
		}
	}
	require.Greater(t, resets, 3)
	t.Logf("400 requests, %d resets of all caches meanwhile: all tokens right", resets)
	r.drained()
	r.sound()
}
