package enginecore_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/serde/enginecore"
)

var structured = map[string]any{"regex": "a+", "_backend": "xgrammar"}

func with(m map[string]any, more ...any) map[string]any {
	out := map[string]any{}
	for k, v := range m {
		out[k] = v
	}
	for i := 0; i < len(more); i += 2 {
		out[more[i].(string)] = more[i+1]
	}
	return out
}

func TestValidParams(t *testing.T) {
	type level int
	const debug level = 1
	for _, p := range []map[string]any{
		nil,
		{},
		{"temperature": 0, "max_tokens": uint8(3), "top_p": float32(0.5), "top_k": debug},
		{"n": 16384, "presence_penalty": -2, "frequency_penalty": 2.0, "repetition_penalty": 1e300, "min_p": 1},
		{"seed": uint64(math.MaxUint64), "top_k": -1, "logprobs": -1, "prompt_logprobs": 0, "output_kind": 2},
		{"seed": int64(math.MinInt64), "stop": "x", "stop_token_ids": []int{1, 2}, "bad_words": []any{"a"}, "_bad_words_token_ids": [][]uint32{{1}, {2, 3}}},
		{"stop": []string{"x"}, "detokenize": true}, {"stop": []string{}, "detokenize": false},
		{"min_tokens": 16}, {"min_tokens": 20, "max_tokens": 20}, {"n": 2, "temperature": 1e-5},
		{"logit_bias": map[int]float64{5: -100}}, {"logit_bias": map[string]any{"5": 1}}, {"logit_bias": map[uint32]int{}},
		{"allowed_token_ids": []int{1}, "extra_args": map[string]any{"a": []any{nil, map[int]string{1: "x"}, []byte{1}}}},
		{"seed": nil, "stop": nil, "logit_bias": (*serde.Map)(nil), "structured_outputs": nil},
		{"structured_outputs": structured}, {"structured_outputs": map[string]any{"json": map[string]any{}, "_backend": "guidance", "regex": nil}},
		{"structured_outputs": map[string]any{"choice": []string{"a"}, "_backend": "outlines", "_backend_was_auto": true, "disable_fallback": false}},
		{"_all_stop_token_ids": []int{7}, "output_text_buffer_length": 4, "flat_logprobs": true},
	} {
		_, err := newest(t).ParseSampling(p)
		require.NoError(t, err, "%v", p)
	}
	scores := &serde.NDArray{DType: "<i4", Shape: []int{1, 2}, Data: make([]byte, 8)}
	for version, p := range map[string]map[string]any{
		"0.33.0": {"prompt_logprob_token_ids": scores},
		"0.31.0": {"prompt_logprob_token_ids": []int{1}, "prompt_logprob_start": 3},
		"0.23.0": {"temperature": 3},
		"0.11.0": {"best_of": nil, "truncate_prompt_tokens": -1},
	} {
		_, err := release(t, version).ParseSampling(p)
		require.NoError(t, err, version)
	}
	_, err := release(t, "0.31.0").ParseSampling(map[string]any{"prompt_logprob_token_ids": scores})
	invalid(t, err, `parameter "prompt_logprob_token_ids": it is a *serde.NDArray, must be a list of token ids`)
}

func TestInvalidParams(t *testing.T) {
	type named []byte
	_, err := newest(t).ParseSampling(map[string]any{"extra_args": map[string]any{"x": named("x")}})
	require.NoError(t, err)
	loop := []any{nil}
	loop[0] = loop
	for i, p := range []map[string]any{
		{"temprature": 1}, {"Temperature": 1}, {"": 1},
		{"temperature": nil}, {"temperature": "1"}, {"temperature": true}, {"temperature": -0.1}, {"temperature": 2.1}, {"temperature": math.NaN()},
		{"temperature": math.Inf(1)}, {"top_p": 0}, {"top_p": 1.1}, {"top_p": math.NaN()}, {"top_k": 1.0}, {"top_k": -2}, {"top_k": 1 << 31}, {"top_k": true},
		{"n": 0}, {"n": 16385}, {"n": 2, "temperature": 0}, {"n": 2, "temperature": 1e-6}, {"repetition_penalty": 0}, {"repetition_penalty": math.Inf(1)},
		{"presence_penalty": 2.1}, {"frequency_penalty": -2.1}, {"min_p": -0.1},
		{"seed": 1.0}, {"seed": "1"}, {"max_tokens": nil}, {"max_tokens": 0}, {"min_tokens": -1}, {"min_tokens": 17}, {"min_tokens": 3, "max_tokens": 2},
		{"logprobs": -2}, {"logprobs": true}, {"prompt_logprobs": 1.5}, {"stop": ""}, {"stop": []string{""}}, {"stop": []any{1}}, {"stop": []byte("x")},
		{"stop": "x", "detokenize": false}, {"stop": []string{"x"}, "detokenize": false}, {"stop_token_ids": []int{-1}}, {"stop_token_ids": []float64{1}},
		{"stop_token_ids": 1}, {"stop_token_ids": []int{1 << 31}}, {"ignore_eos": 1}, {"ignore_eos": nil}, {"output_kind": 3}, {"output_kind": "DELTA"},
		{"logit_bias": map[string]any{"x": 1}}, {"logit_bias": map[int]any{1: "x"}}, {"logit_bias": map[int]float64{1: math.NaN()}}, {"logit_bias": map[int]float64{-1: 1}},
		{"logit_bias": []int{1}}, {"allowed_token_ids": []int{}}, {"bad_words": []string{""}}, {"_bad_words_token_ids": [][]int{{}}}, {"_bad_words_token_ids": []int{1}},
		{"thinking_token_budget": -2}, {"thinking_token_budget": true}, {"stream_interval": 0}, {"extra_args": []int{1}}, {"extra_args": map[int]int{1: 1}},
		{"extra_args": map[string]any{"x": make(chan int)}}, {"extra_args": map[string]any{"x": loop}}, {"extra_args": map[string]any{"x": "\xff"}},
		{"extra_args": map[string]any{"x": &serde.Map{Keys: []any{1}}}}, {"extra_args": map[string]any{"x": &serde.Map{Keys: []any{[]int{1}}, Values: []any{1}}}},
		{"extra_args": map[string]any{"x": map[float64]int{1: 1}}}, {"logprob_token_ids": make([]int, 129)}, {"logprob_token_ids": []int{1}, "logprobs": 2},
		{"structured_outputs": "x"}, {"structured_outputs": map[string]any{}}, {"structured_outputs": map[string]any{"regex": "a"}},
		{"structured_outputs": with(structured, "json", "{}")}, {"structured_outputs": with(structured, "other", 1)}, {"structured_outputs": with(structured, "_backend", "auto")},
		{"structured_outputs": with(structured, "_backend", nil)}, {"structured_outputs": with(structured, "regex", nil)}, {"structured_outputs": with(structured, "regex", 1)},
		{"structured_outputs": map[string]any{"json_object": false, "_backend": "xgrammar"}}, {"structured_outputs": map[string]any{"json": " ", "_backend": "xgrammar"}},
		{"structured_outputs": map[string]any{"choice": []string{}, "_backend": "xgrammar"}},
		{"repetition_detection": 1}, {"repetition_detection": map[string]any{"max_pattern_size": 1}}, {"repetition_detection": map[string]any{"max_pattern_size": 1.0, "min_count": 2}},
		{"repetition_detection": map[string]any{"min_pattern_size": 1}}, {"repetition_detection": map[string]any{"other": 1}}, {"repetition_detection": map[string]any{"min_count": -1}},
		{"trace_decode_token_ids": []int{1}, "bad_words": []string{"x"}}, {"trace_decode_token_ids": []int{1}, "n": 2},
		{"trace_decode_token_ids": []int{1}, "structured_outputs": structured}, {"trace_decode_token_ids": []int{}},
		{"prompt_logprob_token_ids": []int{1}}, {"prompt_logprob_token_ids": &serde.NDArray{DType: "<i4", Shape: []int{2}, Data: make([]byte, 8)}},
		{"prompt_logprob_token_ids": &serde.NDArray{DType: "<f4", Shape: []int{1, 2}, Data: make([]byte, 8)}}, {"prompt_logprob_token_ids": &serde.NDArray{DType: "<i4", Shape: []int{1, 2}, Data: make([]byte, 7)}},
		{"prompt_logprob_token_ids": &serde.NDArray{DType: "", Shape: []int{1, 2}, Data: nil}},
	} {
		name := culprit(t, p)
		t.Run(fmt.Sprintf("%s %d", name, i), func(t *testing.T) {
			_, err := newest(t).ParseSampling(p)
			invalid(t, err, fmt.Sprintf("parameter %q: ", name))
		})
	}
	_, err = newest(t).ParseSampling(map[string]any{"temprature": 1})
	require.EqualError(t, err, `serde: cannot encode parameter "temprature": vLLM 0.33.0 has none of that name and would ignore it`)
}

// culprit returns which of the parameters is to be refused.
func culprit(t *testing.T, p map[string]any) string {
	t.Helper()
	names := slices.Sorted(maps.Keys(p))
	if len(names) == 1 {
		return names[0]
	}
	for _, name := range []string{"n", "stop", "logprobs", "min_tokens"} {
		if slices.Contains(names, name) && !slices.Contains(names, "trace_decode_token_ids") {
			return name
		}
	}
	require.Contains(t, names, "trace_decode_token_ids")
	return "trace_decode_token_ids"
}

func TestParamsOfOtherReleases(t *testing.T) {
	for version, p := range map[string]map[string]any{
		"0.11.0": {"skip_reading_prefix_cache": true}, "0.11.2": {"flat_logprobs": true}, "0.12.0": {"best_of": nil}, "0.13.0": {"skip_clone": true},
		"0.16.0": {"repetition_detection": map[string]any{}}, "0.17.0": {"truncate_prompt_tokens": -1}, "0.18.1": {"thinking_token_budget": 1},
		"0.19.1": {"logprob_token_ids": []int{1}}, "0.26.0": {"stream_interval": 1}, "0.29.0": {"watermarking": true}, "0.30.0": {"prompt_logprob_start": 1},
	} {
		t.Run(version, func(t *testing.T) {
			c := release(t, version)
			_, err := c.ParseSampling(p)
			invalid(t, err, fmt.Sprintf("parameter %q: vLLM %s has none of that name", culprit(t, p), version))
			// Unless the caller answers for it.
			lenient, err := enginecore.New(enginecore.Options{Generation: c.gen, AllowUnknownParams: true})
			require.NoError(t, err)
			params, err := lenient.ParseSampling(p)
			require.NoError(t, err)
			m, err := lenient.EncodeRequest(&enginecore.Request{PromptTokenIDs: []uint32{1}, Params: params})
			require.NoError(t, err)
			back, err := c.request(m.Frames()[1:]...)
			require.NoError(t, err)
			require.Len(t, back.SamplingParams, 1)
		})
	}
	c, err := enginecore.New(enginecore.Options{AllowUnknownParams: true})
	require.NoError(t, err)
	_, err = c.ParseSampling(map[string]any{"x": make(chan int)})
	invalid(t, err, `parameter "x": a chan int has no form in MessagePack here`)
}

func TestPoolingParams(t *testing.T) {
	for _, p := range []map[string]any{
		nil, {}, {"task": "embed", "dimensions": 8}, {"task": nil, "requires_token_ids": true, "extra_kwargs": map[string]any{"a": 1}, "output_kind": 2},
		{"returned_token_ids": []int{1}, "step_tag_id": 0, "use_activation": false, "skip_reading_prefix_cache": nil, "late_interaction_params": nil},
	} {
		_, err := newest(t).ParsePooling(p)
		require.NoError(t, err, "%v", p)
	}
	for _, p := range []map[string]any{
		{"temperature": 1}, {"task": "score"}, {"task": ""}, {"task": "embed classify"}, {"task": 1}, {"dimensions": 0}, {"dimensions": 1.0}, {"output_kind": 1},
		{"requires_token_ids": nil}, {"extra_kwargs": 1}, {"late_interaction_params": []any{"x", "y"}}, {"returned_token_ids": []int{-1}}, {"use_activation": 1},
	} {
		name := culprit(t, p)
		t.Run(fmt.Sprintf("%s %v", name, p[name]), func(t *testing.T) {
			_, err := newest(t).ParsePooling(p)
			invalid(t, err, fmt.Sprintf("parameter %q: ", name))
		})
	}
	old := release(t, "0.11.2")
	for v, want := range map[string]string{"embed": "", "token_embed": "", "encode": "must be one of"} {
		_, err := old.ParsePooling(map[string]any{"task": v, "truncate_prompt_tokens": 5, "normalize": true})
		if want == "" {
			require.NoError(t, err)
		} else {
			invalid(t, err, want)
		}
	}
	_, err := old.ParsePooling(map[string]any{"truncate_prompt_tokens": 0})
	invalid(t, err, `parameter "truncate_prompt_tokens": it is the int64 0, must be -1, or an integer of at least 1`)
}

// The parameters as they lie on the wire: 16 bits of length, names in the order
// of vLLM's class, numbers in Python's types.
func TestParamsOnTheWire(t *testing.T) {
	c := newest(t)
	m, err := c.EncodeRequest(&enginecore.Request{
		PromptTokenIDs: []uint32{1}, EOSTokenID: ptr(uint32(2)),
		Params: c.sampling(t, map[string]any{"max_tokens": 9, "temperature": 1, "logit_bias": map[string]int{"10": 1, "9": 2}, "seed": nil}),
	})
	require.NoError(t, err)
	want := "\xde\x00\x05" + "\xabtemperature\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00" + "\xaamax_tokens\x09" +
		"\xad_eos_token_id\x02" + "\xb3_all_stop_token_ids\x91\x02" +
		"\xaalogit_bias\x82\x0a\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00\x09\xcb\x40\x00\x00\x00\x00\x00\x00\x00"
	require.Contains(t, string(m.Frames()[1]), want)
}

// Parameters are what they were parsed to be, whatever becomes of what they were parsed
// from.
func TestParamsAreImmutable(t *testing.T) {
	ids, data, array := []int{1, 2}, []byte{3}, &serde.NDArray{DType: "<i4", Shape: []int{1, 2}, Data: make([]byte, 8)}
	nested := map[string]any{"data": data}
	p := newest(t).sampling(t, map[string]any{"stop_token_ids": ids, "extra_args": nested, "prompt_logprob_token_ids": array, "n": 3, "max_tokens": 7})
	ids[0], data[0], nested["more"], array.Data[0], array.Shape[0] = 9, 9, 9, 9, 9
	require.Equal(t, []any{int64(1), int64(2)}, p.Get("stop_token_ids"))
	require.Equal(t, map[string]any{"data": []byte{3}}, p.Get("extra_args"))
	require.Equal(t, &serde.NDArray{DType: "<i4", Shape: []int{1, 2}, Data: make([]byte, 8)}, p.Get("prompt_logprob_token_ids"))
	require.Equal(t, 3, p.N())
	require.Equal(t, 7, p.MaxTokens())
	require.Nil(t, p.Get("seed"))
	none := newest(t).sampling(t, nil)
	require.Equal(t, 1, none.N())
	require.Equal(t, 16, none.MaxTokens())
}
