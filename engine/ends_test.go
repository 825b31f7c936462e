package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/engine/enginetest"
	"github.com/ringcache/ringcache/engine/enginetest/wire"
	"github.com/ringcache/ringcache/engine/zmq"
	"github.com/ringcache/ringcache/internal/loglimit"
	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// lost sends a request whose item the engine has lost, and returns when the producer
// runs that makes the item again. produce is what the producer does.
func lost(t *testing.T, r *rig, produce func(context.Context)) (*engine.Stream, hostileEngine, string) {
	t.Helper()
	h := newHostile(t, r)
	first, err := r.Generate(r.ctx, r.request(1, "a"))
	require.NoError(t, err)
	h.say(tokens(h.ids(1)[0], 1, enginecore.FinishStop))
	_, err = first.Collect()
	require.NoError(t, err)
	q := r.request(10, "a")
	q.Items.Rollback()
	q.Items, err = r.cache.Begin(r.ctx, "lost", mmcache.Want{Key: "a", Bytes: 4096, Modality: "image"})
	require.NoError(t, err)
	busy := make(chan struct{})
	_, err = q.Items.Item(r.ctx, "a", func(ctx context.Context, b *mmcache.Builder) error {
		close(busy)
		produce(ctx)
		return errors.Join(ctx.Err(), mmcache.Ready(picture("a", rows), nil)(ctx, b))
	})
	require.NoError(t, err)
	st, err := r.Generate(r.ctx, q)
	require.NoError(t, err)
	id := h.ids(1)[0]
	h.say(enginecore.Output{RequestID: id, NewTokenIDs: []uint32{}, FinishReason: finish(enginecore.FinishError), MMCacheMissHashes: []string{"a"}})
	select {
	case <-busy:
	case <-r.ctx.Done():
		t.Fatal("the producer was not asked")
	}
	return st, h, id
}

// TestCloseEndsProducers: Close with a context that has ended does not wait for a producer
// that waits for the end of its own.
func TestCloseEndsProducers(t *testing.T) {
	r := newRig(t, setup{mode: "lru", idle: true})
	st, _, _ := lost(t, r, func(ctx context.Context) { <-ctx.Done() })
	over, cancel := context.WithCancel(r.ctx)
	cancel()
	require.NoError(t, r.Close(over))
	require.ErrorIs(t, lastWord(st), engine.ErrClosed)
	require.NoError(t, r.cache.Close(), "nothing is open")
}

// TestCloseReportsProducers: a producer that goes on although its context has ended is waited
// for as long as Options.Grace.
func TestCloseReportsProducers(t *testing.T) {
	r := newRig(t, setup{mode: "lru", idle: true, client: func(o *engine.Options) { o.Grace = time.Millisecond }})
	release := make(chan struct{})
	_, _, _ = lost(t, r, func(context.Context) { <-release })
	over, cancel := context.WithCancel(r.ctx)
	cancel()
	err := r.Close(over)
	close(release)
	require.ErrorContains(t, err, "1 requests were not given back within 1ms (Options.Grace)")
	r.until(func() bool { return r.Stats().InFlight == 0 })
	r.Client = closedClient(t) // whose Close has no error
}

// closedClient is a client that nobody uses.
func closedClient(t *testing.T) *engine.Client {
	c, err := engine.New(engine.Options{Transport: zmq.Transport{}, Model: model()})
	require.NoError(t, err)
	require.NoError(t, c.Close(t.Context()))
	return c
}

// TestCloseWaitsForAborts: items that another goroutine is about to give back are given back
// when Close returns, and the fence is behind them.
func TestCloseWaitsForAborts(t *testing.T) {
	g := newGate()
	r := newRig(t, setup{mode: "shm", client: func(o *engine.Options) { o.Transport = g }})
	st, err := r.Generate(r.ctx, r.request(1_000_000, "a"))
	require.NoError(t, err)
	g.hold(typeAbort, 1)
	defer g.release()
	var aborts sync.WaitGroup
	aborts.Go(st.Close)
	g.waits(t)
	over, cancel := context.WithCancel(r.ctx)
	cancel()
	closed := make(chan error, 1)
	go func() { closed <- r.Close(over) }()
	select {
	case err = <-closed:
		err = errors.Join(err, r.cache.Close()) // which fails
	case <-time.After(100 * time.Millisecond): // it waits, as it should
	}
	require.NoError(t, err, "the items were not given back")
	g.release()
	require.NoError(t, <-closed)
	require.Zero(t, r.cache.Stats().Quarantined, "the fence has passed")
	require.NoError(t, r.cache.Close())
	aborts.Wait()
}

// TestProducerHoldsUpNoAnswers: while an item is made again for one request, others are
// answered, whatever the engine answers to the first.
func TestProducerHoldsUpNoAnswers(t *testing.T) {
	r := newRig(t, setup{mode: "lru", idle: true})
	release := make(chan struct{})
	done := sync.OnceFunc(func() { close(release) })
	t.Cleanup(done)
	bad, h, id := lost(t, r, func(context.Context) { <-release })
	good, err := r.Generate(r.ctx, r.request(10))
	require.NoError(t, err)
	goodID := h.ids(1)[0]
	h.say(tokens(id, 1, enginecore.FinishStop)) // of a request that it does not have
	h.say(tokens(goodID, 3, enginecore.FinishStop))
	got, err := good.Collect()
	require.NoError(t, err)
	require.Len(t, got[0], 3)
	var failed *engine.RequestError
	require.ErrorAs(t, lastWord(bad), &failed)
	require.ErrorContains(t, failed, "was to be sent again")
	done()
	require.Equal(t, []string{id}, h.aborted())
}

// TestProducerHoldsUpNoStart: when an engine went another can be started, although a producer
// that makes an item again does not return.
func TestProducerHoldsUpNoStart(t *testing.T) {
	r := newRig(t, setup{mode: "lru", idle: true})
	release := make(chan struct{})
	done := sync.OnceFunc(func() { close(release) })
	t.Cleanup(done)
	st, h, _ := lost(t, r, func(context.Context) { <-release })
	require.NoError(t, h.out.Close())
	require.ErrorIs(t, lastWord(st), engine.ErrDead)
	require.NoError(t, r.start())
	r.ask(1)
	done()
}

// TestHelloAfterFailedStart: an engine that got the addresses of a session that failed says
// hello again on the same connection, and gets those of the next one, once.
func TestHelloAfterFailedStart(t *testing.T) {
	r := newRig(t, setup{idle: true})
	hs := dealer(t, r, r.Address().Handshake, "\x00\x00")
	welcome := func() *enginecore.Init {
		m, err := hs.Recv()
		require.NoError(t, err)
		init, err := wire.DecodeInit(m[0])
		require.NoError(t, err)
		return init
	}
	ctx, cancel := context.WithCancel(r.ctx)
	started := make(chan error, 1)
	go func() { started <- r.Start(ctx) }()
	say(t, hs, "HELLO")
	first := welcome()
	cancel()
	require.ErrorIs(t, <-started, context.Canceled)

	say(t, hs, "HELLO")
	go func() { started <- r.Start(r.ctx) }()
	second := welcome()
	require.NotEqual(t, first.Inputs, second.Inputs)
	in := dealer(t, r, second.Inputs[0], "\x00\x00")
	b, err := engineWire(t, r.o.Generation).EncodeReady(&enginecore.Ready{VLLMVersion: r.o.Generation.Version, WorldSize: 1, MaxModelLen: 4096})
	require.NoError(t, err)
	require.NoError(t, in.Send(b))
	require.NoError(t, <-started)
}

// lines counts what is logged.
type lines struct {
	slog.Handler
	n atomic.Int64
}

func (l *lines) Handle(context.Context, slog.Record) error {
	l.n.Add(1)
	return nil
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }

// TestUntrustedPeersFillNoLog: peers that make no sense, of which there may be any number, cost a
// line a minute for the client and one for the socket.
func TestUntrustedPeersFillNoLog(t *testing.T) {
	var client, socket lines
	r := newRig(t, setup{idle: true, client: func(o *engine.Options) {
		o.Logger, o.Transport = slog.New(&client), zmq.Transport{Logger: slog.New(&socket)}
	}})
	began := time.Now()
	for i := range 20 {
		p := dealer(t, r, r.Address().Handshake, fmt.Sprint("odd", i))
		for range 20 {
			require.NoError(t, p.Send([]byte("x")))
		}
		say(t, p, "WHO")
		say(t, p, "HELLO")
	}
	for range 20 {
		d, err := enginetest.Push(r.ctx, r.Address().Handshake) // is not what connects to a router
		if err == nil {
			d.Close()
		}
	}
	require.Eventually(t, func() bool { return engine.Greeted(r.Client) }, testTimeout, testTick)
	require.NoError(t, r.start())
	most := 1 + int64(time.Since(began)/loglimit.Interval)
	require.Positive(t, client.n.Load())
	require.LessOrEqual(t, client.n.Load(), most+1, "one more for the engine that is ready")
	require.Positive(t, socket.n.Load())
	require.LessOrEqual(t, socket.n.Load(), most)
}

// TestEngineGoesBetweenChildren: the items stay the caller's, and the cache is not misused.
func TestEngineGoesBetweenChildren(t *testing.T) {
	for _, m := range []string{"lru", "shm"} {
		t.Run(m, func(t *testing.T) {
			f := &failing{}
			r := newRig(t, setup{mode: m, client: func(o *engine.Options) { o.Transport = f }})
			r.ask(1, "a")
			q := r.request(1, "a")
			q.Params["n"] = 3
			f.after.Store(2)
			f.on.Store(true)
			_, err := r.Generate(r.ctx, q)
			require.ErrorIs(t, err, engine.ErrDead)
			r.until(func() bool { return r.Stats().InFlight == 0 })
			require.Equal(t, engine.Stats{Requests: 2, Finished: 1, Failed: 1, Starts: 1}, r.Stats())
			require.Zero(t, r.cache.Stats().Misused)
			f.on.Store(false)
			r.e.Kill()
			require.NoError(t, r.start())
			s, err := r.Generate(r.ctx, q)
			require.NoError(t, err)
			got, err := s.Collect()
			require.NoError(t, err)
			require.Equal(t, [][]uint32{want(1, "a"), want(1, "a"), want(1, "a")}, got)
		})
	}
}

// TestRequestFields: what a request can say arrives, and what it can't has the default of vLLM.
func TestRequestFields(t *testing.T) {
	r := newRig(t, setup{})
	ended, eos, salt, session := true, uint32(9), "salt", "conversation"
	q := r.request(1)
	q.EOS, q.Priority, q.CacheSalt, q.SessionID = &eos, -3, salt, session
	q.TraceHeaders = map[string]string{"traceparent": "x"}
	q.ReasoningEnded, q.ReasoningParserKwargs = &ended, map[string]any{"a": true}
	q.KVHints = &enginecore.KVHints{ProtocolVersion: "1", MessageID: "m", Actions: []enginecore.KVHintAction{}}
	s, err := r.Generate(r.ctx, q)
	require.NoError(t, err)
	_, err = s.Collect()
	require.NoError(t, err)
	got := *r.e.Requests()[0]
	require.True(t, strings.HasPrefix(got.RequestID, "r-"))
	require.Positive(t, got.ArrivalTime)
	got.RequestID, got.ArrivalTime = "", 0
	require.Equal(t, enginecore.Request{
		PromptTokenIDs: q.Prompt, EOSTokenID: &eos, Priority: -3, CacheSalt: &salt, SessionID: &session, ExternalReqID: &q.ID,
		TraceHeaders: q.TraceHeaders, ReasoningEnded: &ended, ReasoningParserKwargs: q.ReasoningParserKwargs, KVHints: q.KVHints,
	}, got.Request)
	require.Equal(t, map[string]any{"max_tokens": int64(1), "_all_stop_token_ids": []any{int64(9)}}, got.SamplingParams)
}
