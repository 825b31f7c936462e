package transformer

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/blend"
	"github.com/ringcache/ringcache/blend/rope"
	"github.com/ringcache/ringcache/encoder/safetensors"
)

const config = `{"vocab_size": 8, "hidden_size": 8, "num_hidden_layers": 1,
	"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
	"intermediate_size": 8, "rms_norm_eps": 1e-5, "tie_word_embeddings": true}`

// file has tensors of zeros, in 16 bits, without one of them.
func file(t *testing.T, without string, shape []int) []byte {
	t.Helper()
	layer := "model.layers.0."
	shapes := map[string][]int{
		"model.embed_tokens": {8, 8}, "model.norm": {8},
		layer + "input_layernorm": {8}, layer + "post_attention_layernorm": {8},
		layer + "self_attn.q_proj": {8, 8}, layer + "self_attn.k_proj": {4, 8},
		layer + "self_attn.v_proj": {4, 8}, layer + "self_attn.o_proj": {8, 8},
		layer + "mlp.gate_proj": {8, 8}, layer + "mlp.up_proj": {8, 8}, layer + "mlp.down_proj": {8, 8},
	}
	delete(shapes, without)
	if shape != nil {
		shapes[without] = shape
	}
	var tensors []safetensors.Tensor
	for name, shape := range shapes {
		tensors = append(tensors, safetensors.Tensor{Name: name + ".weight", DType: "BF16", Shape: shape})
	}
	b, err := safetensors.AppendHeader(nil, nil, tensors)
	require.NoError(t, err)
	for _, tensor := range tensors {
		b = append(b, make([]byte, tensor.Size)...)
	}
	return b
}

func TestWhatIsNoModelIsRefused(t *testing.T) {
	good := file(t, "", nil)
	model, err := Load([]byte(config), good)
	require.NoError(t, err)
	require.Equal(t, blend.Dims{
		Layers: 1, Hidden: 8, Heads: 2, KVHeads: 1, HeadDim: 4, Intermediate: 8, Vocabulary: 8,
	}, model.Dims())
	for _, change := range [][2]string{
		{`"num_hidden_layers": 1`, `"num_hidden_layers": 0`},
		{`"num_hidden_layers": 1`, `"num_hidden_layers": 1000000`},
		{`"num_attention_heads": 2`, `"num_attention_heads": 3`},
		{`"num_key_value_heads": 1`, `"num_key_value_heads": -1`},
		{`"head_dim": 4`, `"head_dim": 6`},
		{`1e-5`, `-1`},
		{`"vocab_size": 8`, `"vocab_size": 9`},
		{`true`, `false`},
		{`{`, `[`},
		{`true`, `true, "rope_scaling": {"type": "longrope"}`},
		{`true`, `true, "hidden_act": "gelu"`},
		{`true`, `true, "model_type": "gemma"`},
		{`true`, `true, "sliding_window": 8`},
	} {
		_, err := Load([]byte(strings.Replace(config, change[0], change[1], 1)), good)
		require.ErrorIs(t, err, fs.ErrInvalid, change[1])
	}
	for _, weights := range [][]byte{
		nil, good[:100], good[:len(good)-1],
		file(t, "model.norm", nil), file(t, "model.norm", []int{9}), file(t, "model.norm", []int{2, 4}),
		// Weights that are not computed with, as Qwen has them.
		file(t, "model.layers.0.self_attn.q_norm", []int{4}), file(t, "model.layers.1.input_layernorm", []int{8}),
	} {
		_, err := Load([]byte(config), weights)
		require.ErrorIs(t, err, fs.ErrInvalid)
	}
}

func TestWhatIsNoPromptIsRefused(t *testing.T) {
	model, err := Load([]byte(config), file(t, "", nil))
	require.NoError(t, err)
	kv, err := blend.New(model.Shape(rope.F16), 3)
	require.NoError(t, err)
	for _, tokens := range [][]int64{nil, {1, 2}, {1, 2, 8}, {1, 2, -1}} {
		_, err := model.Prefill(kv, tokens, 0)
		require.ErrorIs(t, err, fs.ErrInvalid, "%v", tokens)
	}
	result, err := model.Prefill(kv, []int64{1, 2, 7}, 0)
	require.NoError(t, err)
	require.Len(t, result.Logits, 3)
	wrong := model.Shape(rope.F16)
	wrong.Heads = 2
	other, err := blend.New(wrong, 3)
	require.NoError(t, err)
	_, err = model.Prefill(other, []int64{1, 2, 7}, 0)
	require.ErrorIs(t, err, fs.ErrInvalid)

	// A plan for fewer layers, or that was used before, ends early.
	plan, err := blend.NewPlan(blend.PlanOptions{Layers: 1, Tokens: 3})
	require.NoError(t, err)
	_, err = model.Blend(kv, []int64{1, 2, 7}, plan, Options{})
	require.NoError(t, err)
	_, err = model.Blend(kv, []int64{1, 2, 7}, plan, Options{})
	require.ErrorIs(t, err, fs.ErrInvalid)
}

// TestPlansOfOtherPromptsAreRefused: rows behind the last token were no error but a panic.
func TestPlansOfOtherPromptsAreRefused(t *testing.T) {
	model, err := Load([]byte(config), file(t, "", nil))
	require.NoError(t, err)
	kv, err := blend.New(model.Shape(rope.F32), 3)
	require.NoError(t, err)
	for _, o := range []blend.PlanOptions{
		{Layers: 1, Tokens: 4}, {Layers: 1, Tokens: 2}, {Layers: 2, Tokens: 3},
	} {
		plan, err := blend.NewPlan(o)
		require.NoError(t, err)
		_, err = model.Blend(kv, []int64{1, 2, 3}, plan, Options{})
		require.ErrorIs(t, err, fs.ErrInvalid, "%+v", o)
	}
	kv.Bytes = kv.Bytes[1:]
	_, err = model.Prefill(kv, []int64{1, 2, 3}, 0)
	require.ErrorIs(t, err, fs.ErrInvalid, "KV without some of its bytes")
}
