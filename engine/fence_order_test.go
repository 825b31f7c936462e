package engine_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/engine/enginetest/wire"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// answer lets a call of the client return.
func (h hostileEngine) answer(c *enginecore.Call) {
	h.t.Helper()
	f, err := newestWire(h.t).EncodeOutputs(&enginecore.Outputs{Answer: &enginecore.Answer{CallID: c.ID}})
	require.NoError(h.t, err)
	require.NoError(h.t, h.out.Send(f...))
}

// TestItemsOfAnAbortByTheEngineWaitForTheWorkers: an engine that aborts a request by itself ends its stream
// regularly, but a worker may still read the items.
func TestItemsOfAnAbortByTheEngineWaitForTheWorkers(t *testing.T) {
	r := newRig(t, setup{mode: "shm", idle: true})
	h := newHostile(t, r)
	st, err := r.Generate(r.ctx, r.request(10, "a"))
	require.NoError(t, err)
	h.say(tokens(h.ids(1)[0], 1, enginecore.FinishAbort))
	got, err := st.Collect()
	require.NoError(t, err)
	require.Len(t, got[0], 1)
	r.until(func() bool { return r.Stats().InFlight == 0 })
	require.EqualValues(t, 1, r.cache.Stats().Quarantined)
	call := take[*enginecore.Call](h)
	h.answer(call)
	r.until(func() bool { return r.cache.Stats().Quarantined == 0 })
}

// TestFenceCoversWhatWasAbortedBeforeTheWorkersWereAsked: a worker that answers may already have been asked when a
// later request is aborted, so that its items wait for another answer.
func TestFenceCoversWhatWasAbortedBeforeTheWorkersWereAsked(t *testing.T) {
	r := newRig(t, setup{mode: "shm", idle: true})
	h := newHostile(t, r)
	first, err := r.Generate(r.ctx, r.request(10, "a"))
	require.NoError(t, err)
	later, err := r.Generate(r.ctx, r.request(10, "b"))
	require.NoError(t, err)
	h.ids(2)

	first.Close()
	require.EqualValues(t, 1, r.cache.Stats().Quarantined)
	asked := take[*enginecore.Call](h)
	later.Close()
	take[wire.Abort](h)
	require.EqualValues(t, 2, r.cache.Stats().Quarantined)
	h.answer(asked)
	again := take[*enginecore.Call](h)
	require.EqualValues(t, 1, r.cache.Stats().Quarantined, "the items of the later request")
	h.answer(again)
	r.until(func() bool { return r.cache.Stats().Quarantined == 0 })
}

// TestMissesThatNeverEnd: an engine that lacks an item however often it is sent ends the request.
func TestMissesThatNeverEnd(t *testing.T) {
	const most = 4 // sends again of a request with one child
	r := newRig(t, setup{mode: "lru", idle: true})
	h := newHostile(t, r)
	st, err := r.Generate(r.ctx, r.request(10, "a"))
	require.NoError(t, err)
	for range most + 1 {
		h.say(enginecore.Output{
			RequestID: h.ids(1)[0], NewTokenIDs: []uint32{}, FinishReason: finish(enginecore.FinishError), MMCacheMissHashes: []string{"a"},
		})
	}
	r.until(func() bool { n := r.Stats(); return n.InFlight == 0 || n.Resent > most })
	require.EqualValues(t, most, r.Stats().Resent)
	var failed *engine.RequestError
	_, err = st.Collect()
	require.ErrorAs(t, err, &failed)
}
