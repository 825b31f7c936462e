package engine_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/engine/enginetest"
	"github.com/ringcache/ringcache/engine/enginetest/wire"
	"github.com/ringcache/ringcache/engine/zmq"
	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// TestSecondGenerateTakesItems: a second Generate with the same Items fails,
// and must not end the items of the first, which still waits in the engine.
func TestSecondGenerateTakesItems(t *testing.T) {
	r := newRig(t, setup{mode: "shm", capacity: 8192, engine: func(o *enginetest.Options) { o.MaxNumSeqs = 1 }})
	busy, err := r.Generate(r.ctx, r.request(1_000_000))
	require.NoError(t, err)
	q := r.request(2, "a")
	first, err := r.Generate(r.ctx, q) // waits behind busy
	require.NoError(t, err)
	_, err = r.Generate(r.ctx, q) // a retry by mistake
	require.ErrorIs(t, err, mmcache.ErrEnded)
	require.NoError(t, r.Check(r.ctx)) // the fence has passed behind one of these
	require.NoError(t, r.Check(r.ctx))
	for i := 0; i < 1000 && cached(r, "a"); i++ {
		req, _ := r.begin(strconv.Itoa(i))
		req.Rollback()
	}
	busy.Close()
	got, err := first.Collect()
	require.NoError(t, err, "the engine: %v", r.e.Fatal())
	require.Equal(t, want(2, "a"), got[0])
	require.NoError(t, r.e.Fatal())
}

func cached(r *rig, key string) bool {
	for k := range r.cache.Keys() {
		if k == key {
			return true
		}
	}
	return false
}

// TestNeverSent: what vLLM's own frontend refuses, or never sends. Sent to vLLM 0.32.0,
// the first five and the schema ended it, or silenced a part of it.
func TestNeverSent(t *testing.T) {
	param := func(name string, v any) func(*engine.Request) { return func(q *engine.Request) { q.Params[name] = v } }
	for name, c := range map[string]refusal{
		// IndexError in the worker. This is how a map from JSON looks.
		"logit_bias of text keys": {"parameter logit_bias", "token 99999 is outside", param("logit_bias", map[string]any{"99999": 1.0})},
		"logit_bias in a Map":     {"parameter logit_bias", "token 99999 is outside", param("logit_bias", &serde.Map{Keys: []any{99999}, Values: []any{1.0}})},
		// RuntimeError in the worker: selected index k out of range.
		"logprobs above the vocabulary":        {"parameter logprobs", "it is 100000, and the most is 20", param("logprobs", 100_000)},
		"prompt_logprobs above the vocabulary": {"parameter prompt_logprobs", "it is 100000, and the most is 20", param("prompt_logprobs", 100_000)},
		// IndexError in the worker, with min_tokens.
		"_all_stop_token_ids": {"parameter _all_stop_token_ids", "token 99999 is outside", func(q *engine.Request) {
			q.Params["_all_stop_token_ids"], q.Params["min_tokens"] = []int{99999}, 1
		}},
		"_eos_token_id": {"parameter _eos_token_id", "token 99999 is outside", param("_eos_token_id", 99999)},
		// With enable_trace_replay these are tokens that come out, and go in again.
		"trace_decode_token_ids": {"parameter trace_decode_token_ids", "token 99999 is outside", param("trace_decode_token_ids", []int{99999})},
		// It keeps a thread of the grammar compiler, of which there is one for two
		// cores; after that no request with structured outputs is ever scheduled.
		"deep JSON schema": {"parameter structured_outputs", "it is nested 5002 deep", param("structured_outputs", map[string]any{
			"_backend": "xgrammar", "json": strings.Repeat(`{"type":"array","items":`, 5000) + `{"type":"string"}` + strings.Repeat("}", 5000),
		})},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{})
			q := r.request(2)
			c.change(&q)
			_, err := r.Generate(r.ctx, q)
			requireRefused(t, err, c.what, c.text)
			require.Empty(t, r.e.Requests())
		})
	}
}

// TestStrayPlaceholder: a placeholder token outside of every placeholder. In
// vLLM 0.11.0 to 0.12.0 and some after, Qwen2-VL counts them in the prompt, and
// IndexError ends the engine; they come from a client's text that is tokenized with
// special tokens.
func TestStrayPlaceholder(t *testing.T) {
	r := newRig(t, setup{mode: "lru"})
	q := r.request(1, "a")
	q.Prompt = append(q.Prompt, placeholder)
	_, err := r.Generate(r.ctx, q)
	requireRefused(t, err, "prompt", "token 9 is 4, which stands for an item")
	q.Items.Rollback()
}

// TestNoMaxModelLen: before 0.20 the ready map is empty, and the options bound the
// prompt.
func TestNoMaxModelLen(t *testing.T) {
	r := newRig(t, setup{version: "0.19.1"})
	q := r.request(1)
	q.Prompt = append(q.Prompt, make([]uint32, 1<<20)...)
	_, err := r.Generate(r.ctx, q)
	requireRefused(t, err, "prompt", "the engine's max_model_len is 4096")
}

// TestDataParallel: an engine that is one of several tells a coordinator when
// it begins to work. Here is none, and its output thread ends with an
// AssertionError (core.py, process_output_sockets).
func TestDataParallel(t *testing.T) {
	r := newRig(t, setup{idle: true, engine: func(o *enginetest.Options) {
		o.Ready = func(r *enginecore.Ready) { r.DataParallelSize = 2 }
	}})
	var m *engine.MismatchError
	require.ErrorAs(t, r.start(), &m)
	require.Contains(t, m.What, "data parallel")
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

// hostile is an engine of which a test has the sockets.
func hostile(t testing.TB, r *rig, identity string) (in, out *enginetest.Peer) {
	t.Helper()
	in, out, err := dialHostile(t, r, identity, func(*enginetest.Peer, *enginecore.Ready) {})
	require.NoError(t, err)
	return in, out
}

// dialHostile starts the client with an engine of which a test has the sockets, and
// returns what Start does. change comes before the engine reports that it is ready.
func dialHostile(t testing.TB, r *rig, identity string, change func(out *enginetest.Peer, r *enginecore.Ready)) (in, out *enginetest.Peer, err error) {
	t.Helper()
	hs := dealer(t, r, r.Address().Handshake, identity)
	started := make(chan error, 1)
	go func() { started <- r.Start(r.ctx) }()
	say(t, hs, "HELLO")
	m, err := hs.Recv()
	require.NoError(t, err)
	init, err := wire.DecodeInit(m[0])
	require.NoError(t, err)
	in = dealer(t, r, init.Inputs[0], identity)
	out, err = enginetest.Push(r.ctx, init.Outputs[0])
	require.NoError(t, err)
	t.Cleanup(func() { out.Close() })
	g := pycompat.Newest()
	ready := &enginecore.Ready{VLLMVersion: g.Version, WorldSize: 1, MaxModelLen: 4096}
	change(out, ready)
	b, err := newestWire(t).EncodeReady(ready)
	require.NoError(t, err)
	require.NoError(t, in.Send(b))
	say(t, hs, "READY")
	return in, out, <-started
}

// dealer connects to a socket of the client.
func dealer(t testing.TB, r *rig, endpoint, identity string) *enginetest.Peer {
	t.Helper()
	p, err := enginetest.Dealer(r.ctx, endpoint, identity)
	require.NoError(t, err)
	t.Cleanup(func() { p.Close() })
	return p
}

// say sends a message of the handshake.
func say(t testing.TB, p *enginetest.Peer, status string) {
	t.Helper()
	b, err := wire.EncodeHandshake(&enginecore.Handshake{Status: status, Headless: true})
	require.NoError(t, err)
	require.NoError(t, p.Send(b))
}

// TestMissOfTextRequest: an engine that claims to lack items of a request that has
// none must not crash the frontend. In a process of its own, since it did.
func TestMissOfTextRequest(t *testing.T) {
	const env = "RINGCACHE_TEST_MISS"
	if os.Getenv(env) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestMissOfTextRequest$", "-test.v")
		cmd.Env = append(os.Environ(), env+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%.1500s", out)
		return
	}
	c, err := engine.New(engine.Options{Transport: zmq.Transport{}, Model: model()}) // nothing to leave behind
	require.NoError(t, err)
	defer c.Close(t.Context())
	r := &rig{Client: c, t: t, ctx: t.Context()}
	_, out := hostile(t, r, "\x00\x00")
	s, err := c.Generate(r.ctx, r.request(1))
	require.NoError(t, err)
	reason := enginecore.FinishError
	f, err := newestWire(t).EncodeOutputs(&enginecore.Outputs{Outputs: []enginecore.Output{{
		RequestID: "r-1", NewTokenIDs: []uint32{}, FinishReason: &reason, MMCacheMissHashes: []string{"x"},
	}}})
	require.NoError(t, err)
	require.NoError(t, out.Send(f...))
	_, err = s.Collect()
	var failed *engine.RequestError
	require.ErrorAs(t, err, &failed)
}

// TestSquatter: whoever stays connected to the handshake port (any process of the
// machine may) does not keep the client's own engine from starting.
func TestSquatter(t *testing.T) {
	r := newRig(t, setup{idle: true})
	say(t, dealer(t, r, r.Address().Handshake, "who?"), "HELLO")
	require.Eventually(t, func() bool { return engine.Greeted(r.Client) }, testTimeout, testTick)
	require.NoError(t, r.start())
}

// TestHandshakeMemory: a peer that nobody knows announces frames that no handshake
// has; no memory is taken for them.
func TestHandshakeMemory(t *testing.T) {
	r := newRig(t, setup{idle: true})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const peers, size = 8, 200 << 20
	var conns []net.Conn
	for range peers {
		d := net.Dialer{}
		c, err := d.DialContext(r.ctx, "tcp", strings.TrimPrefix(r.Address().Handshake, "tcp://"))
		require.NoError(t, err)
		defer c.Close()
		greeting := make([]byte, 64)
		greeting[0], greeting[8], greeting[9], greeting[10] = 0xff, 1, 0x7f, 3
		copy(greeting[12:], "NULL")
		ready := "\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
		_, err = c.Write(append(append(greeting, 4, byte(len(ready))), ready...))
		require.NoError(t, err)
		_, err = c.Write(binary.BigEndian.AppendUint64([]byte{2}, size))
		require.NoError(t, err)
		conns = append(conns, c)
	}
	for _, c := range conns {
		require.NoError(t, c.SetReadDeadline(time.Now().Add(testTimeout)))
		_, err := io.Copy(io.Discard, c)
		require.False(t, os.IsTimeout(err), "still connected")
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20), "a handshake is less than a kilobyte")
}

// TestStaleSocket: a frontend that was killed left its sockets in Options.Dir, and
// the next one starts all the same.
func TestStaleSocket(t *testing.T) {
	dir := t.TempDir()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "in1"), Net: "unix"})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	r := newRig(t, setup{idle: true, client: func(o *engine.Options) { o.Dir = dir }})
	require.NoError(t, r.start())
}

// TestSharedDir: two clients of one folder.
func TestSharedDir(t *testing.T) {
	dir := t.TempDir()
	share := func(o *engine.Options) { o.Dir = dir }
	newRig(t, setup{client: share})
	r := newRig(t, setup{idle: true, client: share})
	require.NoError(t, r.start())
}

// TestLongTempDir: the path of a socket has at most 107 bytes, and a TMPDIR may be
// longer.
func TestLongTempDir(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 100))
	require.NoError(t, os.Mkdir(long, 0o700))
	t.Setenv("TMPDIR", long)
	r := newRig(t, setup{idle: true})
	require.NoError(t, r.start())
}

// TestCloseTwice: the cache "can be closed afterwards", also behind the second
// of two Closes.
func TestCloseTwice(t *testing.T) {
	r := newRig(t, setup{mode: "shm"})
	r.e.Hold(true)
	s, err := r.Generate(r.ctx, r.request(1, "a"))
	require.NoError(t, err)
	closed := make(chan error, 1)
	go func() { closed <- r.Close(r.ctx) }()
	over, cancel := context.WithCancel(r.ctx)
	cancel()
	require.Eventually(t, func() bool {
		_, err := r.Generate(over, engine.Request{})
		return errors.Is(err, fs.ErrClosed)
	}, testTimeout, testTick)
	second := make(chan error, 1)
	go func() { second <- r.Close(r.ctx) }()
	select {
	case err = <-second:
		err = errors.Join(err, r.cache.Close())
	case <-time.After(100 * time.Millisecond): // it waits, as it should
	}
	r.e.Hold(false)
	_, e := s.Collect()
	require.NoError(t, e)
	require.NoError(t, <-closed)
	require.NoError(t, err)
}

// TestSlowProducer: when an engine died another can be started, although a caller's
// producer does not return.
func TestSlowProducer(t *testing.T) {
	r := newRig(t, setup{mode: "lru"})
	r.ask(1, "a")
	busy, release := make(chan struct{}), make(chan struct{})
	items, err := r.cache.Begin(r.ctx, "r", mmcache.Want{Key: "a", Bytes: 4096, Modality: "image"})
	require.NoError(t, err)
	_, err = items.Item(r.ctx, "a", func(ctx context.Context, b *mmcache.Builder) error {
		close(busy)
		<-release
		return mmcache.Ready(picture("a", rows), nil)(ctx, b)
	})
	require.NoError(t, err)
	require.NoError(t, r.ClearItems(r.ctx))
	p, at := prompt(1)
	done := make(chan error, 1)
	go func() {
		_, err := r.Generate(r.ctx, engine.Request{ID: "r", Prompt: p, Placeholders: at, Items: items})
		done <- err
	}()
	<-busy
	gone, _ := r.Gone()
	r.e.Kill()
	<-gone
	err = r.start()
	close(release)
	require.ErrorIs(t, <-done, engine.ErrDead)
	items.Rollback()
	require.NoError(t, err)
}

// TestProbeOfOutput: with Options.Bind the output socket is a port. Who looks in and
// leaves does not count as the engine's end.
func TestProbeOfOutput(t *testing.T) {
	output := &spy{Transport: zmq.Transport{}, seen: make(chan struct{})}
	r := newRig(t, setup{idle: true, client: func(o *engine.Options) { o.Bind, o.Transport = "127.0.0.1", output }})
	require.NoError(t, r.start())
	probe, err := enginetest.Push(r.ctx, output.Endpoint())
	require.NoError(t, err)
	require.NoError(t, probe.Close())
	select {
	case <-output.seen:
	case <-r.ctx.Done():
		t.Fatal("nobody noticed the end of the probe")
	}
	gone, why := r.Gone()
	select {
	case <-gone:
		require.NoError(t, why(), "the engine has not gone")
	default:
	}
	r.ask(1)
}

// spy watches the output socket.
type spy struct {
	engine.Transport
	engine.Socket
	gone bool
	seen chan struct{} // closed when the first end of a peer has been dealt with
}

func (s *spy) Pull(endpoint string) (engine.Socket, error) {
	k, err := s.Transport.Pull(endpoint)
	s.Socket = k
	return s, err
}

func (s *spy) Recv(ctx context.Context) (engine.Message, error) {
	if s.gone {
		s.gone = false
		close(s.seen)
	}
	m, err := s.Socket.Recv(ctx)
	select {
	case <-s.seen:
	default:
		s.gone = m.Gone
	}
	return m, err
}

// TestKeyWithOtherTokens: an engine keeps what it computed of an item by its key; an
// item that takes another number of tokens would not fit there, and end it.
func TestKeyWithOtherTokens(t *testing.T) {
	for _, m := range []string{"none", "lru", "shm"} {
		t.Run(m, func(t *testing.T) {
			r := newRig(t, setup{mode: m})
			r.ask(1, "a")
			r.cache.Invalidate("a")
			p, at := prompt(1)
			p, at[0].Length = append(p[:at[0].Offset+rows-1:at[0].Offset+rows-1], 30), rows-1
			q := engine.Request{ID: "r", Prompt: p, Placeholders: at, Params: map[string]any{"max_tokens": 2}}
			var err error
			q.Items, err = r.cache.Begin(r.ctx, "r", mmcache.Want{Key: "a", Bytes: 4096, Modality: "image"})
			require.NoError(t, err)
			_, err = q.Items.Item(r.ctx, "a", mmcache.Ready(picture("a", rows-1), nil))
			require.NoError(t, err)
			_, err = r.Generate(r.ctx, q)
			requireRefused(t, err, `item 0, key "a"`, "it takes 5 tokens, and took 6 before; the engine goes by the key: use another, or ResetEncoderCache")
			require.NoError(t, r.ResetEncoderCache(r.ctx))
			s, err := r.Generate(r.ctx, q)
			require.NoError(t, err)
			got, err := s.Collect()
			require.NoError(t, err)
			require.Equal(t, enginetest.Tokens(p, 2, picture("a", rows-1)), got[0])
			require.NoError(t, r.e.Fatal())
			r.drained()
		})
	}
}

// TestSleepThatFails: both sides have cleared their items when the engine refuses to
// sleep.
func TestSleepThatFails(t *testing.T) {
	for _, m := range []string{"lru", "shm"} {
		t.Run(m, func(t *testing.T) {
			r := newRig(t, setup{mode: m})
			r.ask(1, "a")
			r.e.Refuse("sleep")
			var failed *engine.CallError
			require.ErrorAs(t, r.Sleep(r.ctx, 1), &failed)
			r.ask(1, "a")
			require.Zero(t, r.Stats().Resent)
			require.Equal(t, int64(2), r.cache.Stats().Produced)
		})
	}
}

// TestSilenceBeginsWithTheRequest: an engine that had nothing to do for long is not
// asked at once when it gets something.
func TestSilenceBeginsWithTheRequest(t *testing.T) {
	r := newRig(t, setup{})
	// The reader has the last token of a request before its client has ended it: until then
	// the engine had something to do.
	idle := func() { r.until(func() bool { return r.Stats().InFlight == 0 }) }
	r.ask(1)
	idle()
	engine.Idle(r.Client, time.Hour)
	r.e.Hold(true)
	s, err := r.Generate(r.ctx, r.request(1))
	require.NoError(t, err)
	require.Less(t, engine.Silent(r.Client), 30*time.Minute)
	r.e.Hold(false)
	_, err = s.Collect()
	require.NoError(t, err)
	idle()
	engine.Idle(r.Client, time.Hour)
	require.NoError(t, r.Check(r.ctx))
	require.Less(t, engine.Silent(r.Client), 30*time.Minute)
}

// TestUnreadableAnswer: an answer to a call that can't be read is a failure, and a
// fence does not pass by it.
func TestUnreadableAnswer(t *testing.T) {
	r := newRig(t, setup{mode: "shm", idle: true, client: func(o *engine.Options) { o.Grace = time.Second }})
	in, out := hostile(t, r, "\x00\x00")
	done := make(chan error, 1)
	go func() { done <- r.Check(r.ctx) }()
	_, err := in.Recv()
	require.NoError(t, err)
	// EngineCoreOutputs whose utility_output is [1, nil, 5]: a pair belongs there.
	b := []byte{0x99, 0, 0x90, 0xc0, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0, 0x93, 1, 0xc0, 5, 0xc0, 0xc0, 0xc0, 0xc0}
	require.NoError(t, out.Send(b))
	var failed *engine.CallError
	require.ErrorAs(t, <-done, &failed)
	require.ErrorContains(t, failed, "can't be read")
}

// TestOutputBeforeReady: an output may come while the client still meets the engine. The
// codec that reads it was changed at the same time; the race detector shows it.
func TestOutputBeforeReady(t *testing.T) {
	r := newRig(t, setup{idle: true})
	_, _, err := dialHostile(t, r, "\x00\x00", func(out *enginetest.Peer, _ *enginecore.Ready) {
		f, err := newestWire(t).EncodeOutputs(&enginecore.Outputs{})
		require.NoError(t, err)
		require.NoError(t, out.Send(f...))
	})
	require.NoError(t, err)
}
