package engine_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/engine/enginetest"
	"github.com/ringcache/ringcache/engine/enginetest/wire"
	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// TestChildrenMultiplyThePrompt: while the first of many children is on its way the prompt has
// not been encoded for the others. A request that ends then was sent in part: what the engine
// got is aborted, no more follows.
func TestChildrenMultiplyThePrompt(t *testing.T) {
	const children, prompt = 4096, 4000 // of 2 bytes each on the wire
	r := newRig(t, setup{mode: "shm", idle: true, client: func(o *engine.Options) { o.Grace = 1 }})
	h := newHostile(t, r)
	q := engine.Request{ID: "r", Prompt: slices.Repeat([]uint32{200}, prompt), Params: map[string]any{"max_tokens": 1, "n": children}}
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	before := heap()
	var s *engine.Stream
	sent := make(chan error, 1)
	go func() {
		var err error
		s, err = r.Generate(ctx, q)
		sent <- err
	}()
	got := h.ids(1) // the rest waits: nobody reads it
	require.Less(t, heap()-before, int64(children*prompt*2/4))
	cancel()
	var aborted []string
	for len(aborted) == 0 {
		m, err := h.in.Recv()
		require.NoError(t, err)
		d, err := newestWire(t).Decode(m)
		require.NoError(t, err)
		switch d := d.(type) {
		case *wire.Request:
			got = append(got, d.RequestID)
		case wire.Abort:
			aborted = d
		}
	}
	require.NoError(t, <-sent, "it was sent in part, and is a stream")
	_, err := s.Next(r.ctx)
	require.ErrorIs(t, err, context.Canceled)
	slices.Sort(got)
	slices.Sort(aborted)
	require.Equal(t, got, aborted)
	require.Less(t, len(got), children)
	r.until(func() bool { return r.Stats().InFlight == 0 })
	go func() { _ = r.Check(r.ctx) }()
	take[*enginecore.Call](h) // and not one more child before it
}

// TestCancelBetweenChildren: items stay until the children that were sent have been aborted.
func TestCancelBetweenChildren(t *testing.T) {
	r := newRig(t, setup{mode: "shm", workers: 2})
	for i := range 5 {
		q := r.request(1000, "a")
		q.ID, q.Params["n"] = fmt.Sprint(i), 5000
		ctx, cancel := context.WithCancel(r.ctx)
		go func() {
			defer cancel()
			_ = enginetest.Wait(r.ctx, func() bool {
				sent := r.e.Requests()
				return len(sent) > 0 && *sent[len(sent)-1].ExternalReqID == q.ID
			})
		}()
		s, err := r.Generate(ctx, q)
		require.NoError(t, err)
		for err == nil {
			_, err = s.Next(r.ctx)
		}
		require.ErrorIs(t, err, context.Canceled)
		q.Items.Rollback() // does nothing: they are the engine's
	}
	r.drained()
	require.NoError(t, r.e.Fatal())
	st := r.Stats()
	require.Equal(t, int64(5), st.Failed)
	require.Equal(t, st.Requests, st.Failed)
}

// TestResentChildLosesItsSeed: a child that is sent again has the seed that it had.
func TestResentChildLosesItsSeed(t *testing.T) {
	r := newRig(t, setup{mode: "lru"})
	r.ask(1, "a")
	r.e.Forget()
	q := r.request(1, "a")
	q.Params["n"], q.Params["seed"] = 3, 10
	s, err := r.Generate(r.ctx, q)
	require.NoError(t, err)
	_, err = s.Collect()
	require.NoError(t, err)
	require.Positive(t, r.Stats().Resent)
	seeds := map[string]int64{}
	for _, m := range r.e.Requests()[1:] {
		seed := m.SamplingParams["seed"].(int64)
		if before, again := seeds[m.RequestID]; again {
			require.Equal(t, before, seed, m.RequestID)
		}
		seeds[m.RequestID] = seed
	}
	require.Len(t, seeds, 3)
}

// TestSeedsAtTheEnd: the seeds of children wrap, as integers of the machine do.
func TestSeedsAtTheEnd(t *testing.T) {
	for _, seed := range []any{int64(math.MaxInt64), uint64(math.MaxUint64)} {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := newRig(t, setup{})
			q := r.request(1)
			q.Params["n"], q.Params["seed"] = 3, seed
			s, err := r.Generate(r.ctx, q)
			require.NoError(t, err)
			_, err = s.Collect()
			require.NoError(t, err)
			require.Len(t, r.e.Requests(), 3)
		})
	}
}

// TestSeeds: children with a large seed must differ, as in Python.
func TestSeeds(t *testing.T) {
	r := newRig(t, setup{})
	q := r.request(1)
	q.Params["n"], q.Params["seed"] = 2, uint64(1<<63)
	s, err := r.Generate(r.ctx, q)
	require.NoError(t, err)
	_, err = s.Collect()
	require.NoError(t, err)
	sent := r.e.Requests()
	require.Len(t, sent, 2)
	require.NotEqual(t, sent[0].SamplingParams["seed"], sent[1].SamplingParams["seed"])
}

// TestResendOfChangedPrompt: what is sent a second time is what was sent, and
// verified, the first time, whatever the caller did with its slices after Generate.
func TestResendOfChangedPrompt(t *testing.T) {
	r := newRig(t, setup{mode: "lru"})
	r.ask(1, "a")
	r.e.Forget()
	again, change := make(chan struct{}), make(chan struct{})
	items, err := r.cache.Begin(r.ctx, "r", mmcache.Want{Key: "a", Bytes: 4096, Modality: "image"})
	require.NoError(t, err)
	_, err = items.Item(r.ctx, "a", func(ctx context.Context, b *mmcache.Builder) error {
		close(again)
		<-change
		return mmcache.Ready(picture("a", rows), nil)(ctx, b)
	})
	require.NoError(t, err)
	p, at := prompt(1)
	q := engine.Request{ID: "r", Prompt: p, Placeholders: at, Items: items, Params: map[string]any{"max_tokens": 2}}
	s, err := r.Generate(r.ctx, q)
	require.NoError(t, err)
	<-again
	q.Prompt[0] = 1_000_000 // the next prompt in the same buffer
	close(change)
	got, err := s.Collect()
	require.NoError(t, err)
	require.Equal(t, want(2, "a"), got[0])
	for _, m := range r.e.Requests() {
		require.Less(t, m.PromptTokenIDs[0], uint32(enginetest.Vocabulary), "never verified")
	}
}

// TestChildrenDrift: n children make n times what the mirror foresees once.
// Where items of one request push each other out, the second child names one that
// the first has evicted. From 0.28 on the engine asks for it; an older one would not
// survive, and is not asked.
func TestChildrenDrift(t *testing.T) {
	for version, ok := range map[string]bool{"0.33.0": true, "0.28.0": true, "0.27.1": false, "0.11.0": false} {
		t.Run(version, func(t *testing.T) {
			r := newRig(t, setup{mode: "lru", capacity: 1000, version: version})
			q := r.request(1, "a", "b")
			q.Params["n"] = 2
			s, err := r.Generate(r.ctx, q)
			if !ok {
				requireRefused(t, err, "parameter n", "does not survive a miss in its cache")
				q.Items.Rollback()
				return
			}
			require.NoError(t, err)
			got, err := s.Collect()
			require.NoError(t, err)
			require.Equal(t, [][]uint32{want(1, "a", "b"), want(1, "a", "b")}, got)
			require.NoError(t, r.e.Fatal())
		})
	}
}
