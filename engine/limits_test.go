package engine_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/engine/enginetest"
	"github.com/ringcache/ringcache/engine/enginetest/wire"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// heap returns the bytes that are reachable.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // pools keep things for one more
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestSlowReaderPinsBatches: what is kept for a reader that does not read is its own tokens,
// not the messages that they came in, which have those of all running requests.
func TestSlowReaderPinsBatches(t *testing.T) {
	const others, steps = 127, 300
	r := newRig(t, setup{mode: "shm", engine: func(o *enginetest.Options) { o.MaxNumSeqs = others + 1 }})
	r.e.Hold(true)
	slow, err := r.Generate(r.ctx, r.request(steps))
	require.NoError(t, err)
	var fast sync.WaitGroup
	for range others {
		s, err := r.Generate(r.ctx, r.request(steps))
		require.NoError(t, err)
		fast.Go(func() {
			if _, err := s.Collect(); err != nil {
				t.Error(err)
			}
		})
	}
	before := heap()
	r.e.Hold(false)
	fast.Wait()
	r.until(func() bool { return r.Stats().InFlight == 0 })
	grown := heap() - before
	const token, rest = 2 << 10, 2 << 20
	require.Less(t, grown, int64(steps*token+rest), "%d bytes for each token", grown/steps)
	got, err := slow.Collect()
	require.NoError(t, err)
	require.Equal(t, want(steps), got[0])
}

// hostileEngine is an engine that sends what a test gives it.
type hostileEngine struct {
	t       testing.TB
	in, out *enginetest.Peer
}

func newHostile(t testing.TB, r *rig) hostileEngine {
	in, out := hostile(t, r, "\x00\x00")
	return hostileEngine{t, in, out}
}

// newestWire is the engine's half of the newest release's messages.
func newestWire(t testing.TB) *wire.Codec { return engineWire(t, nil) }

func engineWire(t testing.TB, g *pycompat.Generation) *wire.Codec {
	t.Helper()
	c, err := wire.New(serde.Options{Generation: g})
	require.NoError(t, err)
	return c
}

// take returns the next message of that type.
func take[T any](h hostileEngine) T {
	h.t.Helper()
	for {
		m, err := h.in.Recv()
		require.NoError(h.t, err)
		d, err := newestWire(h.t).Decode(m)
		require.NoError(h.t, err)
		if d, ok := d.(T); ok {
			return d
		}
	}
}

// ids returns the engine's ids of the next n requests.
func (h hostileEngine) ids(n int) (ids []string) {
	h.t.Helper()
	for range n {
		ids = append(ids, take[*wire.Request](h).RequestID)
	}
	return ids
}

// aborted returns the ids of the next abort, in order.
func (h hostileEngine) aborted() []string {
	h.t.Helper()
	ids := take[wire.Abort](h)
	slices.Sort(ids)
	return ids
}

func (h hostileEngine) say(outputs ...enginecore.Output) {
	h.t.Helper()
	f, err := newestWire(h.t).EncodeOutputs(&enginecore.Outputs{Outputs: outputs})
	require.NoError(h.t, err)
	require.NoError(h.t, h.out.Send(f...))
}

// tokens is an output of n tokens.
func tokens(id string, n int, finish ...enginecore.FinishReason) enginecore.Output {
	o := enginecore.Output{RequestID: id, NewTokenIDs: make([]uint32, n)}
	if len(finish) > 0 {
		o.FinishReason = &finish[0]
	}
	return o
}

// TestMoreThanAsked: an engine that sends more for a request than it may loses that request,
// and hears so; no other suffers.
func TestMoreThanAsked(t *testing.T) {
	const most = 10
	for name, c := range map[string]struct {
		params map[string]any
		say    func(h hostileEngine, ids []string)
		text   string
	}{
		"tokens at once": {map[string]any{"max_tokens": most}, func(h hostileEngine, ids []string) { h.say(tokens(ids[0], most+1)) }, "max_tokens"},
		"tokens in turn": {map[string]any{"max_tokens": most}, func(h hostileEngine, ids []string) {
			for range most + 1 {
				h.say(tokens(ids[0], 1))
			}
		}, "max_tokens"},
		"the default":        {map[string]any{}, func(h hostileEngine, ids []string) { h.say(tokens(ids[0], 17)) }, "max_tokens"},
		"the model's length": {map[string]any{"max_tokens": 1 << 30}, func(h hostileEngine, ids []string) { h.say(tokens(ids[0], 4097)) }, "max_model_len"},
		"with the last":      {map[string]any{"max_tokens": most}, func(h hostileEngine, ids []string) { h.say(tokens(ids[0], most+1, enginecore.FinishLength)) }, "max_tokens"},
		"after its end": {map[string]any{"max_tokens": most, "n": 2}, func(h hostileEngine, ids []string) {
			h.say(tokens(ids[0], 1, enginecore.FinishStop))
			h.say(tokens(ids[0], 1))
		}, "finished"},
		"nothing, without end": {map[string]any{"max_tokens": most}, func(h hostileEngine, ids []string) {
			for range 5000 {
				h.say(tokens(ids[0], 0))
			}
		}, "no tokens"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{mode: "shm", idle: true, client: func(o *engine.Options) { o.Grace = 1 }})
			h := newHostile(t, r)
			q := r.request(most)
			q.Params = c.params
			bad, err := r.Generate(r.ctx, q)
			require.NoError(t, err)
			n, _ := c.params["n"].(int)
			ids := h.ids(max(n, 1))
			good, err := r.Generate(r.ctx, r.request(most))
			require.NoError(t, err)
			goodID := h.ids(1)[0]
			c.say(h, ids)
			h.say(tokens(goodID, 3, enginecore.FinishStop))
			for err = nil; err == nil; {
				_, err = bad.Next(r.ctx)
			}
			var failed *engine.RequestError
			require.ErrorAs(t, err, &failed)
			require.ErrorContains(t, err, c.text)
			require.Equal(t, ids, h.aborted())
			got, err := good.Collect()
			require.NoError(t, err)
			require.Len(t, got[0], 3)
			r.until(func() bool { return r.Stats().InFlight == 0 })
			require.Equal(t, engine.Stats{Requests: 2, Finished: 1, Failed: 1, Starts: 1}, r.Stats())
		})
	}
}

// TestAllThatWasAsked: what fills the bounds exactly is fine.
func TestAllThatWasAsked(t *testing.T) {
	r := newRig(t, setup{mode: "shm", idle: true, client: func(o *engine.Options) { o.Grace = 1 }})
	h := newHostile(t, r)
	q := r.request(7)
	q.Params["n"] = 3
	s, err := r.Generate(r.ctx, q)
	require.NoError(t, err)
	for i, id := range h.ids(3) {
		h.say(tokens(id, 3), tokens(id, 0), tokens(id, 4))
		h.say(tokens(id, 0, enginecore.FinishReason(i%2)))
	}
	got, err := s.Collect()
	require.NoError(t, err)
	require.Equal(t, "[7 7 7]", fmt.Sprint([]int{len(got[0]), len(got[1]), len(got[2])}))
}
