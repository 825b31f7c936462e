package blend_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/blend"
	"github.com/ringcache/ringcache/blend/rope"
	"github.com/ringcache/ringcache/blend/transformer"
	"github.com/ringcache/ringcache/encoder/safetensors"
	"github.com/ringcache/ringcache/internal/invariants"
)

// randomModel returns a model with random weights: 6 layers of 128 elements, 8 heads of queries and 4 of
// keys.
func randomModel(t testing.TB, seed uint64, change func(config map[string]any)) *transformer.Model {
	t.Helper()
	config := map[string]any{
		"vocab_size": 512, "hidden_size": 128, "num_hidden_layers": 6,
		"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 16,
		"intermediate_size": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
		"tie_word_embeddings": true, "max_position_embeddings": 4096,
	}
	if change != nil {
		change(config)
	}
	text, err := json.Marshal(config)
	require.NoError(t, err)
	model, err := transformer.Load(text, weights(t, seed, config))
	require.NoError(t, err)
	return model
}

func weights(t testing.TB, seed uint64, config map[string]any) []byte {
	t.Helper()
	n := func(name string) int { return config[name].(int) }
	d, m := n("hidden_size"), n("intermediate_size")
	q, k := n("num_attention_heads")*n("head_dim"), n("num_key_value_heads")*n("head_dim")
	shapes := map[string][]int{"model.embed_tokens": {n("vocab_size"), d}, "model.norm": {d}}
	for i := range n("num_hidden_layers") {
		for name, shape := range map[string][]int{
			"input_layernorm": {d}, "post_attention_layernorm": {d},
			"self_attn.q_proj": {q, d}, "self_attn.k_proj": {k, d}, "self_attn.v_proj": {k, d},
			"self_attn.o_proj": {d, q}, "mlp.gate_proj": {m, d}, "mlp.up_proj": {m, d}, "mlp.down_proj": {d, m},
		} {
			shapes["model.layers."+string(rune('0'+i))+"."+name] = shape
		}
	}
	var tensors []safetensors.Tensor
	for name, shape := range shapes {
		tensors = append(tensors, safetensors.Tensor{Name: name + ".weight", DType: "F32", Shape: shape})
	}
	file, err := safetensors.AppendHeader(nil, nil, tensors) // sorts them
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(seed, 34))
	for _, tensor := range tensors {
		x := make([]float32, tensor.Size/4)
		for i := range x {
			x[i] = 1
			if len(tensor.Shape) == 2 {
				x[i] = float32(r.NormFloat64() / math.Sqrt(float64(tensor.Shape[1])))
			}
			if tensor.Name == "model.embed_tokens.weight" {
				x[i] *= embeddingScale // what a token is, beside what attention adds to it
			}
		}
		b := make([]byte, tensor.Size)
		rope.F32.Encode(b, x)
		file = append(file, b...)
	}
	return file
}

// embeddingScale makes plain concatenation about as wrong as in the experiment in numpy that docs/blend.md
// repeats, which had 0.809.
const embeddingScale = 4.75

// prompt is tokens, of which some have KV that was computed alone.
type prompt struct {
	tokens []int64
	cover  []blend.Match
	suffix int
}

func randomTokens(r *rand.Rand, n, vocabulary int) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = r.Int64N(int64(vocabulary))
	}
	return out
}

// documents is the prompt of the experiment of docs/blend.md: a prefix, three chunks, a query. With the race
// detector, which finds as much in short ones, the chunks are short.
func documents(r *rand.Rand, vocabulary int) prompt {
	const prefix, chunks, query = 16, 3, 24
	chunk := 96
	if invariants.Enabled {
		chunk = 20
	}
	p := prompt{
		tokens: randomTokens(r, prefix+chunks*chunk+query, vocabulary), suffix: query,
		cover: []blend.Match{{Start: 0, End: prefix}},
	}
	for i := range chunks {
		p.cover = append(p.cover, blend.Match{Start: prefix + i*chunk, End: prefix + (i+1)*chunk})
	}
	return p
}

// alone computes the KV of tokens alone.
func alone(t testing.TB, model *transformer.Model, tokens []int64, position int, d rope.DType) blend.Chunk {
	t.Helper()
	kv, err := blend.New(model.Shape(d), len(tokens))
	require.NoError(t, err)
	_, err = model.Prefill(kv, tokens, position)
	require.NoError(t, err)
	return blend.Chunk{KV: kv, Position: position}
}

// move computes each chunk alone, at position 0, and moves it to its place.
func (p prompt) move(t testing.TB, model *transformer.Model, d rope.DType) blend.KV {
	t.Helper()
	kv, err := blend.New(model.Shape(d), len(p.tokens))
	require.NoError(t, err)
	var moves []*blend.Move
	for _, m := range p.cover {
		move, err := blend.NewMove(model.Table(), kv, m.Start, alone(t, model, p.tokens[m.Start:m.End], 0, d))
		require.NoError(t, err)
		moves = append(moves, move)
	}
	require.NoError(t, blend.MoveAll(moves, 2))
	return kv
}

func (p prompt) plan(t testing.TB, o blend.PlanOptions, layers int) *blend.Plan {
	t.Helper()
	o.Layers, o.Tokens, o.Cover, o.Suffix = layers, len(p.tokens), p.cover, p.suffix
	plan, err := blend.NewPlan(o)
	require.NoError(t, err)
	return plan
}

func (p prompt) blend(
	t testing.TB, model *transformer.Model, kv blend.KV, m blend.Measure, o blend.PlanOptions,
) *transformer.Result {
	t.Helper()
	result, err := model.Blend(kv, p.tokens, p.plan(t, o, model.Dims().Layers), transformer.Options{Measure: m})
	require.NoError(t, err)
	return result
}

func (p prompt) full(t testing.TB, model *transformer.Model, d rope.DType) (blend.KV, *transformer.Result) {
	t.Helper()
	kv, err := blend.New(model.Shape(d), len(p.tokens))
	require.NoError(t, err)
	result, err := model.Prefill(kv, p.tokens, 0)
	require.NoError(t, err)
	return kv, result
}

func clone(kv blend.KV) blend.KV {
	kv.Bytes = slices.Clone(kv.Bytes)
	return kv
}

// random blends, but for deviations that are drawn.
func (p prompt) random(
	t testing.TB, model *transformer.Model, kv blend.KV, o blend.PlanOptions, r *rand.Rand,
) *transformer.Result {
	t.Helper()
	draw := func(_ int, rows []int) []float64 {
		out := make([]float64, len(rows))
		for i := range out {
			out[i] = r.Float64()
		}
		return out
	}
	result, err := model.Blend(kv, p.tokens, p.plan(t, o, model.Dims().Layers), transformer.Options{Deviations: draw})
	require.NoError(t, err)
	return result
}
