package serde

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/pycompat"
)

func pack(t testing.TB, v any) []byte {
	b, err := msgpack.Marshal(v)
	require.NoError(t, err)
	return b
}

func drawOutput(t *rapid.T, g *pycompat.Generation) EngineCoreOutput {
	text := rapid.String()
	has := func(name string) bool { return slices.Contains(g.OutputFields, name) }
	array := func() any {
		return &NDArray{"<i4", []int{2, 3}, seq(24, 5, 1)}
	}
	o := EngineCoreOutput{
		RequestID: text.Draw(t, "id"), NewTokenIDs: rapid.SliceOf(rapid.Uint32()).Draw(t, "tokens"),
		FinishReason: drawSome(t, "finish", func() FinishReason { return FinishReason(rapid.IntRange(0, 9).Draw(t, "reason")) }),
		StopReason:   rapid.SampledFrom([]any{nil, int64(7), "stop"}).Draw(t, "stop"),
	}
	if rapid.Bool().Draw(t, "logprobs") {
		o.Logprobs = []any{array(), &NDArray{"<f4", []int{2}, seq(8, 1, 1)}, array(), nil}
		o.PromptLogprobs = []any{&Tensor{DTypeFloat32, []int{2}, seq(8, 1, 1)}, []any{int64(1)}}
	}
	if rapid.Bool().Draw(t, "pooling") {
		o.PoolingOutput = drawTensor(t)
	}
	if rapid.Bool().Draw(t, "events") {
		o.Events = []Event{{EventScheduled, rapid.Float64().Draw(t, "when")}}
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
		o.RoutedExperts = array().(*NDArray)
	}
	if has("mm_cache_miss_hashes") {
		o.MMCacheMissHashes = []string{text.Draw(t, "hash")}
	}
	if has("prompt_token_id_logprobs") && rapid.Bool().Draw(t, "scores") {
		o.PromptTokenIDLogprobs = &Tensor{DTypeFloat32, []int{1, 2}, seq(8, 1, 1)}
	}
	if has("error") && rapid.Bool().Draw(t, "error") {
		o.Error = &RequestError{text.Draw(t, "code"), text.Draw(t, "message"), rapid.Bool().Draw(t, "retryable")}
	}
	return o
}

func TestPropertyOutputs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := drawOptions(t)
		want := &EngineCoreOutputs{
			EngineIndex: rapid.IntRange(0, 300).Draw(t, "engine"), Timestamp: rapid.Float64().Draw(t, "timestamp"), Outputs: []EngineCoreOutput{},
			WaveComplete: drawSome(t, "complete", func() int { return 3 }), StartWave: drawSome(t, "start", func() int { return -1 }),
		}
		for range rapid.IntRange(0, 3).Draw(t, "outputs") {
			want.Outputs = append(want.Outputs, drawOutput(t, o.Generation))
		}
		if rapid.Bool().Draw(t, "scheduler") {
			want.SchedulerStats = drawMap(t, 0)
		}
		if rapid.Bool().Draw(t, "finished") {
			want.FinishedRequests = []string{"a"}
		}
		if rapid.Bool().Draw(t, "utility") {
			want.UtilityOutput = &UtilityOutput{CallID: rapid.Uint64().Draw(t, "call")}
			if rapid.Bool().Draw(t, "failed") {
				want.UtilityOutput.Failure = ptr("no")
			} else {
				want.UtilityOutput.Result = drawAny(t, 0)
				want.UtilityOutput.ResultType = rapid.SampledFrom([]any{nil, []any{"builtins", "set"}}).Draw(t, "type")
			}
		}
		f, err := EncodeOutputs(want, o)
		require.NoError(t, err)
		got, err := DecodeOutputs(f, o)
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}

func TestEncodeOutputsRefuses(t *testing.T) {
	old, err := pycompat.Lookup("0.11.0")
	require.NoError(t, err)
	for name, m := range map[string]*EngineCoreOutputs{
		"nil": nil, "weight_version": {WeightVersion: ptr("")},
		"error":              {Outputs: []EngineCoreOutput{{Error: &RequestError{}}}},
		"prefill_stats":      {Outputs: []EngineCoreOutput{{PrefillStats: 1}}},
		"num_nans_in_logits": {Outputs: []EngineCoreOutput{{NumNaNsInLogits: 1}}},
		"stop_reason":        {Outputs: []EngineCoreOutput{{StopReason: 1.5}}},
		"new_logprobs":       {Outputs: []EngineCoreOutput{{Logprobs: make(chan int)}}},
		"tensor":             {Outputs: []EngineCoreOutput{{PoolingOutput: &Tensor{DTypeBool, []int{1}, nil}}}},
	} {
		_, err := EncodeOutputs(m, Options{Generation: old})
		require.ErrorIs(t, err, ErrInvalid, name)
		require.ErrorContains(t, err, name)
	}
}

// One part that can't be read must not take the others with it.
func TestDecodeOutputsLosesLittle(t *testing.T) {
	g := pycompat.Newest()
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
	decode := func(outputs any, rest ...any) *EngineCoreOutputs {
		m, err := DecodeOutputs(Frames{pack(t, append([]any{0, outputs, nil, 1.5}, rest...))}, Options{})
		require.NoError(t, err)
		return m
	}
	bad := map[string]any{
		"new_token_ids": []any{"x"}, "finish_reason": "stop", "stop_reason": 1.5, "mm_cache_miss_hashes": []int{1},
		"pooling_output": 1, "events": []any{1}, "trace_headers": 1, "routed_experts": "x", "num_nans_in_logits": "x", "error": 1,
		"new_logprobs": []any{[]any{"<i4", []int{2}, []byte{1}}},
	}
	for name, v := range bad {
		m := decode([]any{entry(map[string]any{"request_id": "a"}), entry(map[string]any{name: v}), entry(map[string]any{"request_id": "c"})})
		require.Empty(t, m.Unread, name)
		require.Len(t, m.Outputs, 3, name)
		require.Equal(t, 1.5, m.Timestamp)
		o := m.Outputs[1]
		require.Equal(t, "r", o.RequestID)
		if outputTable[name].needed {
			require.ErrorIs(t, o.Err, ErrCorrupt, name)
			require.Empty(t, o.Unread)
		} else {
			require.NoError(t, o.Err, name)
			require.Len(t, o.Unread, 1, name)
			require.Equal(t, []uint32{1, 2}, o.NewTokenIDs)
		}
		o.Err, o.Unread = nil, nil
		if name == "new_token_ids" {
			o.NewTokenIDs = []uint32{1, 2}
		}
		require.Equal(t, EngineCoreOutput{RequestID: "r", NewTokenIDs: []uint32{1, 2}}, o, name)
	}
	// Whose it is can't be told.
	m := decode([]any{entry(map[string]any{"request_id": 5}), 7, []any{}, entry(nil)})
	require.Len(t, m.Outputs, 1)
	require.Len(t, m.Unread, 3)
	// Short, long, and numbers of the future.
	m = decode([]any{[]any{"r", []int{9}}, []any{"s"}, entry(map[string]any{"more": map[string]any{"x": 1}, "finish_reason": 77})}, nil, nil, nil, nil, nil, "new", []int{1})
	require.Empty(t, m.Unread)
	require.Equal(t, []uint32{9}, m.Outputs[0].NewTokenIDs)
	require.ErrorIs(t, m.Outputs[1].Err, ErrCorrupt)
	require.Equal(t, FinishReason(77), *m.Outputs[2].FinishReason)
	require.Equal(t, "FinishReason(77)", m.Outputs[2].FinishReason.String())
	// Fields of the message itself.
	m = decode("x", "y", []string{"done"}, "z")
	require.Len(t, m.Unread, 3)
	require.Equal(t, []string{"done"}, m.FinishedRequests)
	// An answer that can't be read is one all the same.
	m = decode([]any{}, []any{uint64(math.MaxUint64), nil, []any{nil, &msgpack.RawMessage{0xd4, 1, 0}}})
	require.Empty(t, m.Unread)
	require.Equal(t, uint64(math.MaxUint64), m.UtilityOutput.CallID)
	require.ErrorIs(t, m.UtilityOutput.Err, ErrUnsupported)
	for _, doc := range []string{"", "\xc0", "\x80", "\x90\x90", "\x91", EngineDead} {
		_, err := DecodeOutputs(Frames{[]byte(doc)}, Options{})
		require.ErrorIs(t, err, ErrCorrupt, "%q", doc)
	}
	require.True(t, IsEngineDead(Frames{[]byte(EngineDead)}))
	require.False(t, IsEngineDead(Frames{[]byte(EngineDead), nil}))
}

func TestFinishReasons(t *testing.T) {
	for r, s := range map[FinishReason]string{
		FinishStop: "stop", FinishLength: "length", FinishAbort: "abort", FinishError: "error", FinishRepetition: "repetition",
	} {
		require.Equal(t, s, r.String())
	}
}
