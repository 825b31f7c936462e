package enginecore_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/engine/enginetest/wire"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/serde/enginecore"
)

func drawOutput(t *rapid.T, g *pycompat.Generation) enginecore.Output {
	text := rapid.String()
	has := func(name string) bool { return slices.Contains(g.OutputFields, name) }
	array := func() any {
		return &serde.NDArray{DType: "<i4", Shape: []int{2, 3}, Data: seq(24, 5, 1)}
	}
	o := enginecore.Output{
		RequestID: text.Draw(t, "id"), NewTokenIDs: rapid.SliceOf(rapid.Uint32()).Draw(t, "tokens"),
		FinishReason: drawSome(t, "finish", func() enginecore.FinishReason { return enginecore.FinishReason(rapid.IntRange(0, 9).Draw(t, "reason")) }),
		StopReason:   rapid.SampledFrom([]any{nil, int64(7), "stop"}).Draw(t, "stop"),
	}
	if rapid.Bool().Draw(t, "logprobs") {
		o.Logprobs = []any{array(), &serde.NDArray{DType: "<f4", Shape: []int{2}, Data: seq(8, 1, 1)}, array(), nil}
		o.PromptLogprobs = []any{&serde.Tensor{DType: "float32", Shape: []int{2}, Data: seq(8, 1, 1)}, []any{int64(1)}}
	}
	if rapid.Bool().Draw(t, "pooling") {
		n := rapid.SampledFrom([]int{0, 3, 300}).Draw(t, "pooled")
		o.PoolingOutput = &serde.Tensor{DType: "uint8", Shape: []int{n}, Data: seq(n, 1, 1)}
	}
	if rapid.Bool().Draw(t, "events") {
		o.Events = []enginecore.Event{{Type: enginecore.EventScheduled, Timestamp: rapid.Float64().Draw(t, "when")}}
	}
	if rapid.Bool().Draw(t, "kv") {
		o.KVTransferParams = drawMap(t, 0)
	}
	if rapid.Bool().Draw(t, "headers") {
		o.TraceHeaders = map[string]string{"a": text.Draw(t, "header")}
	}
	for name, at := range map[string]*int{
		"num_cached_tokens": &o.NumCachedTokens, "num_external_computed_tokens": &o.NumExternalComputedTokens, "num_nans_in_logits": &o.NumNaNsInLogits,
	} {
		if has(name) {
			*at = 3
		}
	}
	if has("prefill_stats") && rapid.Bool().Draw(t, "stats") {
		o.PrefillStats = map[string]any{"num_cached_tokens": int64(5)}
	}
	if has("routed_experts") && rapid.Bool().Draw(t, "experts") {
		o.RoutedExperts = array().(*serde.NDArray)
	}
	if has("mm_cache_miss_hashes") {
		o.MMCacheMissHashes = []string{text.Draw(t, "hash")}
	}
	if has("prompt_token_id_logprobs") && rapid.Bool().Draw(t, "scores") {
		o.PromptTokenIDLogprobs = &serde.Tensor{DType: "float32", Shape: []int{1, 2}, Data: seq(8, 1, 1)}
	}
	if has("error") && rapid.Bool().Draw(t, "error") {
		o.Error = &enginecore.RequestError{Code: text.Draw(t, "code"), Message: text.Draw(t, "message"), Retryable: rapid.Bool().Draw(t, "retryable")}
	}
	return o
}

func TestPropertyOutputs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPair(t)
		want := &enginecore.Outputs{
			EngineIndex: rapid.IntRange(0, 300).Draw(t, "engine"), Timestamp: rapid.Float64().Draw(t, "timestamp"), Outputs: []enginecore.Output{},
			WaveComplete: drawSome(t, "complete", func() int { return 3 }), StartWave: drawSome(t, "start", func() int { return -1 }),
		}
		for range rapid.IntRange(0, 3).Draw(t, "outputs") {
			want.Outputs = append(want.Outputs, drawOutput(t, p.gen))
		}
		if rapid.Bool().Draw(t, "scheduler") {
			want.SchedulerStats = drawMap(t, 0)
		}
		if rapid.Bool().Draw(t, "finished") {
			want.FinishedRequests = []string{"a"}
		}
		if rapid.Bool().Draw(t, "utility") {
			want.Answer = &enginecore.Answer{CallID: rapid.Uint64().Draw(t, "call")}
			if rapid.Bool().Draw(t, "failed") {
				want.Answer.Failure = ptr("no")
			} else {
				want.Answer.Result = drawAny(t, 0)
				want.Answer.ResultType = rapid.SampledFrom([]any{nil, []any{"builtins", "set"}}).Draw(t, "type")
			}
		}
		f, err := p.engine.EncodeOutputs(want)
		require.NoError(t, err)
		got, err := p.DecodeOutputs(f)
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}

func TestEncodeOutputsRefuses(t *testing.T) {
	old := release(t, "0.11.0")
	one := func(o enginecore.Output) *enginecore.Outputs {
		return &enginecore.Outputs{Outputs: []enginecore.Output{o}}
	}
	for text, m := range map[string]*enginecore.Outputs{
		"it is a nil *Outputs":                                                  nil,
		"field weight_version: vLLM 0.11.0 has none":                            {WeightVersion: ptr("")},
		"field error: vLLM 0.11.0 has none":                                     one(enginecore.Output{Error: &enginecore.RequestError{}}),
		"field prefill_stats: vLLM 0.11.0 has none":                             one(enginecore.Output{PrefillStats: 1}),
		"field num_nans_in_logits: vLLM 0.11.0 has none":                        one(enginecore.Output{NumNaNsInLogits: 1}),
		"field stop_reason: it is a float64, must be nil, an int64 or a string": one(enginecore.Output{StopReason: 1.5}),
		"field new_logprobs: a chan int has no form in MessagePack here":        one(enginecore.Output{Logprobs: make(chan int)}),
		"tensor: it has no Data":                                                one(enginecore.Output{PoolingOutput: &serde.Tensor{DType: "bool", Shape: []int{1}}}),
	} {
		t.Run(text, func(t *testing.T) {
			_, err := old.engine.EncodeOutputs(m)
			invalid(t, err, text)
		})
	}
}

// One part that can't be read must not take the others with it.
func TestDecodeOutputsLosesLittle(t *testing.T) {
	p := newest(t)
	g := p.gen
	entry := func(change map[string]any) []any {
		out := []any{"r", []int{1, 2}}
		for _, name := range g.OutputFields[2:] {
			v := change[name]
			if v == nil && name == "num_nans_in_logits" {
				v = 0 // the one that can't be None
			}
			out = append(out, v)
		}
		for name, v := range change {
			if i := slices.Index(g.OutputFields, name); i < 2 && i >= 0 {
				out[i] = v
			}
		}
		if v, given := change["more"]; given {
			out = append(out, v)
		}
		return out
	}
	decode := func(outputs any, rest ...any) *enginecore.Outputs {
		m, err := p.DecodeOutputs([][]byte{pack(t, append([]any{0, outputs, nil, 1.5}, rest...))})
		require.NoError(t, err)
		return m
	}
	bad := map[string]any{
		"new_token_ids": []any{"x"}, "finish_reason": "stop", "stop_reason": 1.5, "mm_cache_miss_hashes": []int{1},
		"pooling_output": 1, "events": []any{1}, "trace_headers": 1, "routed_experts": "x", "num_nans_in_logits": "x", "error": 1,
		"new_logprobs": []any{[]any{"<i4", []int{2}, []byte{1}}},
	}
	unread := map[string]string{ // what is named: the field, or what was expected there
		"pooling_output": "tensor at byte", "events": "corrupt event", "trace_headers": "corrupt trace_headers", "routed_experts": "corrupt ndarray",
		"num_nans_in_logits": "corrupt num_nans_in_logits", "error": "corrupt error", "new_logprobs": "corrupt ndarray",
	}
	for name, v := range bad {
		m := decode([]any{entry(map[string]any{"request_id": "a"}), entry(map[string]any{name: v}), entry(map[string]any{"request_id": "c"})})
		require.Empty(t, m.Unread, name)
		require.Len(t, m.Outputs, 3, name)
		require.Equal(t, 1.5, m.Timestamp)
		o := m.Outputs[1]
		require.Equal(t, "r", o.RequestID)
		if enginecore.Needed(name) {
			corrupt(t, o.Err, "serde: corrupt "+name)
			require.Empty(t, o.Unread)
		} else {
			require.NoError(t, o.Err, name)
			require.Len(t, o.Unread, 1, name)
			typed(t, o.Unread[0])
			require.ErrorContains(t, o.Unread[0], unread[name])
			require.Equal(t, []uint32{1, 2}, o.NewTokenIDs)
		}
		o.Err, o.Unread = nil, nil
		if name == "new_token_ids" {
			o.NewTokenIDs = []uint32{1, 2}
		}
		require.Equal(t, enginecore.Output{RequestID: "r", NewTokenIDs: []uint32{1, 2}}, o, name)
	}
	// The first field that can't be read is the cause.
	m := decode([]any{entry(map[string]any{"finish_reason": "stop", "mm_cache_miss_hashes": []int{1}})})
	corrupt(t, m.Outputs[0].Err, "serde: corrupt finish_reason")
	// Whose it is can't be told.
	m = decode([]any{entry(map[string]any{"request_id": 5}), 7, []any{}, entry(nil)})
	require.Len(t, m.Outputs, 1)
	require.Len(t, m.Unread, 3)
	for i, text := range []string{"request_id at byte", "output at byte", "got an empty array, want a request id"} {
		corrupt(t, m.Unread[i], text)
	}
	// Short, long, and numbers of the future.
	m = decode([]any{[]any{"r", []int{9}}, []any{"s"}, entry(map[string]any{"more": map[string]any{"x": 1}, "finish_reason": 77})}, nil, nil, nil, nil, nil, "new", []int{1})
	require.Empty(t, m.Unread)
	require.Equal(t, []uint32{9}, m.Outputs[0].NewTokenIDs)
	corrupt(t, m.Outputs[1].Err, "got an array of 1, want new_token_ids")
	require.Equal(t, enginecore.FinishReason(77), *m.Outputs[2].FinishReason)
	require.Equal(t, "FinishReason(77)", m.Outputs[2].FinishReason.String())
	// Fields of the message itself.
	m = decode("x", "y", []string{"done"}, "z")
	require.Len(t, m.Unread, 3)
	for i, name := range []string{"outputs", "utility_output", "wave_complete"} {
		corrupt(t, m.Unread[i], "serde: corrupt "+name+" at byte")
	}
	require.Equal(t, []string{"done"}, m.FinishedRequests)
	// An answer that can't be read is one all the same.
	m = decode([]any{}, []any{uint64(math.MaxUint64), nil, []any{nil, &msgpack.RawMessage{0xd4, 1, 0}}})
	require.Empty(t, m.Unread)
	require.Equal(t, uint64(math.MaxUint64), m.Answer.CallID)
	require.ErrorIs(t, m.Answer.Err, serde.ErrUnsupported)
	require.ErrorContains(t, m.Answer.Err, "result holds the extension 1, which is never executed")
	for doc, text := range map[string]string{
		"": "main document", "\xc0": "got nil, want an array", "\x80": "got a map, want an array", "\x90\x90": "1 bytes follow", "\x91": "declares 1 values",
		"ENGINE_CORE_DEAD!": "16 bytes follow",
	} {
		_, err := p.DecodeOutputs([][]byte{[]byte(doc)})
		corrupt(t, err, text, "%q", doc)
	}
	_, err := p.DecodeOutputs([][]byte{[]byte(wire.EngineDead)})
	require.ErrorIs(t, err, enginecore.ErrEngineDead)
	_, err = p.DecodeOutputs([][]byte{[]byte(wire.EngineDead), nil})
	corrupt(t, err, "main document at byte 1: got 15 bytes follow the document")
}

func TestFinishReasons(t *testing.T) {
	for r, s := range map[enginecore.FinishReason]string{
		enginecore.FinishStop: "stop", enginecore.FinishLength: "length", enginecore.FinishAbort: "abort", enginecore.FinishError: "error", enginecore.FinishRepetition: "repetition",
	} {
		require.Equal(t, s, r.String())
	}
}
