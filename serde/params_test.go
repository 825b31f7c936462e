package serde

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/pycompat"
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
	for _, p := range []Params{
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
		{"seed": nil, "stop": nil, "logit_bias": (*Map)(nil), "structured_outputs": nil},
		{"structured_outputs": structured}, {"structured_outputs": map[string]any{"json": map[string]any{}, "_backend": "guidance", "regex": nil}},
		{"structured_outputs": map[string]any{"choice": []string{"a"}, "_backend": "outlines", "_backend_was_auto": true, "disable_fallback": false}},
		{"_all_stop_token_ids": []int{7}, "output_text_buffer_length": 4, "flat_logprobs": true},
	} {
		require.NoError(t, p.Validate(nil), "%v", p)
	}
	scores := &NDArray{"<i4", []int{1, 2}, make([]byte, 8)}
	require.NoError(t, Params{"prompt_logprob_token_ids": scores}.Validate(pycompat.Newest()))
	g, err := pycompat.Lookup("0.31.0")
	require.NoError(t, err)
	require.NoError(t, Params{"prompt_logprob_token_ids": []int{1}, "prompt_logprob_start": 3}.Validate(g))
	require.Error(t, Params{"prompt_logprob_token_ids": scores}.Validate(g))
	g, err = pycompat.Lookup("0.23.0")
	require.NoError(t, err)
	require.NoError(t, Params{"temperature": 3}.Validate(g))
	g, err = pycompat.Lookup("0.11.0")
	require.NoError(t, err)
	require.NoError(t, Params{"best_of": nil, "truncate_prompt_tokens": -1}.Validate(g))
}

func TestInvalidParams(t *testing.T) {
	type named []byte
	require.NoError(t, Params{"extra_args": map[string]any{"x": named("x")}}.Validate(pycompat.Newest()))
	loop := []any{nil}
	loop[0] = loop
	for _, p := range []Params{
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
		{"extra_args": map[string]any{"x": &Map{Keys: []any{1}}}}, {"extra_args": map[string]any{"x": &Map{Keys: []any{[]int{1}}, Values: []any{1}}}},
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
		{"prompt_logprob_token_ids": []int{1}}, {"prompt_logprob_token_ids": &NDArray{"<i4", []int{2}, make([]byte, 8)}},
		{"prompt_logprob_token_ids": &NDArray{"<f4", []int{1, 2}, make([]byte, 8)}}, {"prompt_logprob_token_ids": &NDArray{"<i4", []int{1, 2}, make([]byte, 7)}},
		{"prompt_logprob_token_ids": &NDArray{"", []int{1, 2}, nil}},
	} {
		err := p.Validate(nil)
		require.ErrorIs(t, err, ErrInvalid, "%v", p)
		require.ErrorContains(t, err, `parameter "`, "%v", p)
		_, err = EncodeRequest(&EngineCoreRequest{PromptTokenIDs: []uint32{1}, SamplingParams: p}, Options{})
		require.ErrorIs(t, err, ErrInvalid, "%v", p)
	}
	err := Params{"temprature": 1}.Validate(pycompat.Newest())
	require.EqualError(t, err, `serde: cannot encode parameter "temprature": vLLM 0.33.0 has none of that name and would ignore it`)
}

func TestParamsOfOtherReleases(t *testing.T) {
	for version, p := range map[string]Params{
		"0.11.0": {"skip_reading_prefix_cache": true}, "0.11.2": {"flat_logprobs": true}, "0.12.0": {"best_of": nil}, "0.13.0": {"skip_clone": true},
		"0.16.0": {"repetition_detection": map[string]any{}}, "0.17.0": {"truncate_prompt_tokens": -1}, "0.18.1": {"thinking_token_budget": 1},
		"0.19.1": {"logprob_token_ids": []int{1}}, "0.26.0": {"stream_interval": 1}, "0.29.0": {"watermarking": true}, "0.30.0": {"prompt_logprob_start": 1},
	} {
		g, err := pycompat.Lookup(version)
		require.NoError(t, err)
		require.ErrorContains(t, p.Validate(g), "vLLM "+version+" has none of that name", version)
		// Unless the caller answers for it.
		r := &EngineCoreRequest{PromptTokenIDs: []uint32{1}, SamplingParams: p}
		_, err = EncodeRequest(r, Options{Generation: g})
		require.Error(t, err)
		f, err := EncodeRequest(r, Options{Generation: g, AllowUnknownParams: true})
		require.NoError(t, err)
		back, err := DecodeRequest(f, Options{Generation: g})
		require.NoError(t, err)
		require.Len(t, back.SamplingParams, 1)
	}
	_, err := EncodeRequest(&EngineCoreRequest{PromptTokenIDs: []uint32{1}, SamplingParams: Params{"x": make(chan int)}}, Options{AllowUnknownParams: true})
	require.ErrorIs(t, err, ErrInvalid)
}

func TestPoolingParams(t *testing.T) {
	for _, p := range []Params{
		nil, {}, {"task": "embed", "dimensions": 8}, {"task": nil, "requires_token_ids": true, "extra_kwargs": map[string]any{"a": 1}, "output_kind": 2},
		{"returned_token_ids": []int{1}, "step_tag_id": 0, "use_activation": false, "skip_reading_prefix_cache": nil, "late_interaction_params": nil},
	} {
		require.NoError(t, p.ValidatePooling(nil), "%v", p)
	}
	for _, p := range []Params{
		{"temperature": 1}, {"task": "score"}, {"task": ""}, {"task": "embed classify"}, {"task": 1}, {"dimensions": 0}, {"dimensions": 1.0}, {"output_kind": 1},
		{"requires_token_ids": nil}, {"extra_kwargs": 1}, {"late_interaction_params": []any{"x", "y"}}, {"returned_token_ids": []int{-1}}, {"use_activation": 1},
	} {
		require.ErrorIs(t, p.ValidatePooling(nil), ErrInvalid, "%v", p)
	}
	g, err := pycompat.Lookup("0.11.2")
	require.NoError(t, err)
	for v, want := range map[string]string{"embed": "", "token_embed": "", "encode": "must be one of"} {
		err := Params{"task": v, "truncate_prompt_tokens": 5, "normalize": true}.ValidatePooling(g)
		if want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
	require.Error(t, Params{"truncate_prompt_tokens": 0}.ValidatePooling(g))
}

// The parameters as they lie on the wire: 16 bits of length, names in the order
// of vLLM's class, numbers in Python's types.
func TestParamsOnTheWire(t *testing.T) {
	f, err := EncodeRequest(&EngineCoreRequest{
		PromptTokenIDs: []uint32{1}, EOSTokenID: ptr(uint32(2)),
		SamplingParams: Params{"max_tokens": 9, "temperature": 1, "logit_bias": map[string]int{"10": 1, "9": 2}, "seed": nil},
	}, Options{})
	require.NoError(t, err)
	want := "\xde\x00\x05" + "\xabtemperature\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00" + "\xaamax_tokens\x09" +
		"\xad_eos_token_id\x02" + "\xb3_all_stop_token_ids\x91\x02" +
		"\xaalogit_bias\x82\x0a\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00\x09\xcb\x40\x00\x00\x00\x00\x00\x00\x00"
	require.Contains(t, string(f[0]), want)
}
