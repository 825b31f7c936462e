package engine_test

import (
	"context"
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/engine/enginetest"
	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/serde"
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

// TestFirstStrayPlaceholderIsNamed: of tokens of two modalities that both stray, the first in the
// prompt is refused, and not that of the modality which a map gives first.
func TestFirstStrayPlaceholderIsNamed(t *testing.T) {
	r := newRig(t, setup{mode: "lru", client: func(o *engine.Options) {
		audio := o.Model.Modalities["image"]
		token := uint32(placeholder + 1)
		audio.Placeholder = &token
		o.Model.Modalities["audio"] = audio
	}})
	for range 50 {
		q := r.request(1)
		q.Prompt = []uint32{1, placeholder + 1, 20, placeholder}
		_, err := r.Generate(r.ctx, q)
		requireRefused(t, err, "prompt", `token 1 is 5, which stands for an item of modality "audio"`)
	}
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
