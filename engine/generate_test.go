package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/pycompat"
)

var modes = []string{"none", "processor_only", "lru", "shm"}

func TestGenerate(t *testing.T) {
	for _, m := range modes {
		t.Run(m, func(t *testing.T) {
			r := newRig(t, setup{mode: m, workers: 2})
			require.Equal(t, 2, r.Ready().WorldSize)
			require.Equal(t, pycompat.Newest(), engine.Generation(r.Client))
			r.ask(5)
			r.ask(3, "a")
			r.ask(3, "a", "b")
			r.ask(7, "b", "a", "b")
			require.NoError(t, r.Check(r.ctx))
			if m == "lru" || m == "shm" {
				require.Equal(t, int64(2), r.cache.Stats().Produced)
				for _, f := range r.e.Requests()[3].Features {
					_, inline := f.Data.Lookup("pixels") // the mirror has put it back
					require.Equal(t, m == "lru", inline)
				}
			}
			require.NoError(t, r.e.Fatal())
			st := r.Stats()
			require.Equal(t, engine.Stats{Requests: 4, Finished: 4, Starts: 1}, st)
			r.drained()
		})
	}
}

// TestEveryGeneration: the messages of all releases.
func TestEveryGeneration(t *testing.T) {
	for _, g := range pycompat.Releases() {
		t.Run(g.Version, func(t *testing.T) {
			r := newRig(t, setup{mode: "shm", version: g.Version, workers: 2})
			require.Equal(t, g, engine.Generation(r.Client))
			r.ask(2)
			for range 3 {
				r.ask(2, "a", "a")
			}
			require.NoError(t, r.e.Fatal())
			r.drained()
		})
	}
}

// TestManyRequests: clients, more pictures than fit, aborts at any moment.
func TestManyRequests(t *testing.T) {
	for _, m := range modes {
		t.Run(m, func(t *testing.T) {
			r := newRig(t, setup{mode: m, workers: 2, capacity: 8 * 1024})
			var clients sync.WaitGroup
			for c := range 8 {
				clients.Go(func() {
					rnd := rand.New(rand.NewPCG(uint64(c), 1))
					for i := range 40 {
						var keys []string
						for range rnd.IntN(3) {
							keys = append(keys, fmt.Sprint("k", rnd.IntN(12)))
						}
						q, err := r.tryRequest(1+rnd.IntN(8), keys...)
						if err != nil {
							t.Error(err)
							return
						}
						q.Params["n"] = 1 + rnd.IntN(3)
						q.ID = fmt.Sprintf("c%d.%d", c, i)
						ctx, cancel := context.WithCancel(r.ctx)
						if rnd.IntN(4) == 0 {
							go cancel()
						}
						s, err := r.Generate(ctx, q)
						if err != nil {
							if q.Items != nil {
								q.Items.Rollback()
							}
							cancel()
							if !errors.Is(err, context.Canceled) {
								t.Error(err)
							}
							continue
						}
						if rnd.IntN(4) == 0 {
							_, _ = s.Next(r.ctx)
							s.Close()
						} else if got, err := s.Collect(); err == nil {
							for _, child := range got {
								if fmt.Sprint(child) != fmt.Sprint(want(q.Params["max_tokens"].(int), keys...)) {
									t.Errorf("%v: wrong tokens", keys)
								}
							}
						} else if !errors.Is(err, context.Canceled) {
							t.Error(err)
						}
						cancel()
					}
				})
			}
			clients.Wait()
			require.NoError(t, r.e.Fatal())
			r.drained()
			st := r.Stats()
			require.Equal(t, st.Requests, st.Finished+st.Failed)
			require.Positive(t, st.Failed)
		})
	}
}

// TestAbort: however a request is given up, the engine stops it, and its items are
// let go when a fence has passed.
func TestAbort(t *testing.T) {
	ways := map[string]func(r *rig, cancel func(), s *engine.Stream) error{
		"context": func(r *rig, cancel func(), s *engine.Stream) error {
			cancel()
			return context.Canceled
		},
		"close": func(r *rig, cancel func(), s *engine.Stream) error {
			s.Close()
			s.Close()
			return engine.ErrAborted
		},
		"break": func(r *rig, cancel func(), s *engine.Stream) error {
			for range s.Outputs() {
				break
			}
			return engine.ErrAborted
		},
	}
	for name, way := range ways {
		for _, early := range []bool{false, true} {
			if early && name == "break" {
				continue // which comes with an output
			}
			t.Run(fmt.Sprintf("%s/early=%v", name, early), func(t *testing.T) {
				r := newRig(t, setup{mode: "shm"})
				r.e.Hold(early)
				ctx, cancel := context.WithCancel(r.ctx)
				defer cancel()
				s, err := r.Generate(ctx, r.request(1_000_000, "a"))
				require.NoError(t, err)
				if !early {
					_, err := s.Next(r.ctx)
					require.NoError(t, err)
				}
				cause := way(r, cancel, s)
				for err == nil {
					_, err = s.Next(r.ctx)
				}
				require.ErrorIs(t, err, cause)
				if early {
					require.Eventually(t, func() bool { return r.cache.Stats().Quarantined == 1 }, testTimeout, testTick,
						"no fence could pass")
					r.e.Hold(false)
				}
				r.drained()
				require.Equal(t, int64(1), r.Stats().Failed)
				require.Equal(t, []string{r.e.Requests()[0].RequestID}, r.e.Aborts())
				r.ask(2, "b")
			})
		}
	}
}

// TestAbortBeforeSending: nothing is sent for a context that has ended.
func TestAbortBeforeSending(t *testing.T) {
	r := newRig(t, setup{mode: "shm"})
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	q := r.request(3, "a")
	_, err := r.Generate(ctx, q)
	require.ErrorIs(t, err, context.Canceled)
	s, err := r.Generate(r.ctx, q) // the items are still good
	require.NoError(t, err)
	got, err := s.Collect()
	require.NoError(t, err)
	require.Equal(t, want(3, "a"), got[0])
	require.Len(t, r.e.Requests(), 1)
	r.drained()
}

// TestChildren: n sequences are n requests, each with its own seed, and each
// reads the items.
func TestChildren(t *testing.T) {
	r := newRig(t, setup{mode: "shm", workers: 2})
	q := r.request(4, "a")
	q.Params["n"], q.Params["seed"] = 3, 10
	s, err := r.Generate(r.ctx, q)
	require.NoError(t, err)
	got, err := s.Collect()
	require.NoError(t, err)
	require.Equal(t, [][]uint32{want(4, "a"), want(4, "a"), want(4, "a")}, got)
	ids := map[string]bool{}
	for i, c := range r.e.Requests() {
		require.EqualValues(t, 10+i, c.SamplingParams["seed"])
		require.NotContains(t, c.SamplingParams, "n")
		require.Equal(t, "r", *c.ExternalReqID)
		ids[c.RequestID] = true
	}
	require.Len(t, ids, 3)
	r.drained()
}

// TestMisses: an engine that lost its mirrored items is sent them again, and the
// client does not notice.
func TestMisses(t *testing.T) {
	r := newRig(t, setup{mode: "lru"})
	for range 3 {
		r.ask(2, "a", "b")
		r.e.Forget()
	}
	q := r.request(2, "a", "b")
	q.Params["n"] = 3
	s, err := r.Generate(r.ctx, q)
	require.NoError(t, err)
	got, err := s.Collect()
	require.NoError(t, err)
	require.Equal(t, [][]uint32{want(2, "a", "b"), want(2, "a", "b"), want(2, "a", "b")}, got)
	require.Positive(t, r.Stats().Resent)
	r.drained()
}

// TestSameItemTwice: a request that shows an item twice brings it once, also when the engine
// never had it.
func TestSameItemTwice(t *testing.T) {
	for _, m := range modes {
		t.Run(m, func(t *testing.T) {
			r := newRig(t, setup{mode: m})
			r.ask(2, "a", "b", "a")
			require.NoError(t, r.e.Fatal())
			r.drained()
		})
	}
}

// TestOutputs: the last output contains the reason, and the stream has an end.
func TestOutputs(t *testing.T) {
	r := newRig(t, setup{})
	s, err := r.Generate(r.ctx, r.request(3))
	require.NoError(t, err)
	var tokens []uint32
	for range 3 {
		o, err := s.Next(r.ctx)
		require.NoError(t, err)
		tokens = append(tokens, o.TokenIDs...)
		require.Equal(t, len(tokens) == 3, o.FinishReason != nil)
	}
	require.Equal(t, want(3), tokens)
	for range 2 {
		_, err = s.Next(r.ctx)
		require.ErrorIs(t, err, io.EOF)
	}
	r.e.Hold(true)
	s, err = r.Generate(r.ctx, r.request(3))
	require.NoError(t, err)
	over, cancel := context.WithCancel(r.ctx)
	cancel()
	_, err = s.Next(over)
	require.ErrorIs(t, err, context.Canceled, "only the wait has ended")
	r.e.Hold(false)
	got, err := s.Collect()
	require.NoError(t, err)
	require.Equal(t, want(3), got[0])
}

// TestSweep: what is remembered of items that were sent is bounded by what the
// engine keeps.
func TestSweep(t *testing.T) {
	r := newRig(t, setup{mode: "lru", capacity: 8 * 1024})
	for i := range 1200 {
		r.ask(1, fmt.Sprint("k", i))
	}
	require.Less(t, engine.Remembered(r.Client), 1100)
	r.ask(1, "k1199")
}
