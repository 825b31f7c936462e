package transformer

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"

	"github.com/ringcache/ringcache/blend"
	"github.com/ringcache/ringcache/blend/rope"
	"github.com/ringcache/ringcache/encoder/safetensors"
)

// A Model is a decoder with its weights.
type Model struct {
	dims    blend.Dims
	epsilon float32
	table   *rope.Table

	embedding []float32 // a row for each token
	layers    []layer
	norm      []float32
	head      matrix
}

type layer struct {
	attentionNorm, mlpNorm []float32
	q, k, v, o             matrix
	gate, up, down         matrix
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("transformer: "+format+": %w", append(args, fs.ErrInvalid)...)
}

// Load reads a model. config is its config.json, weights a safetensors file of float32, float16 or bfloat16.
func Load(config, weights []byte) (*Model, error) {
	var c struct {
		Type       string  `json:"model_type"`
		Activation string  `json:"hidden_act"`
		Epsilon    float32 `json:"rms_norm_eps"`
		Tied       bool    `json:"tie_word_embeddings"`
	}
	if err := json.Unmarshal(config, &c); err != nil {
		return nil, invalid("no configuration: %v", err)
	}
	if !slices.Contains([]string{"", "llama", "mistral"}, c.Type) || c.Activation != "" && c.Activation != "silu" {
		return nil, invalid("a model of type %q with the activation %q", c.Type, c.Activation)
	}
	dims, err := blend.ParseDims(config)
	if err != nil {
		return nil, err
	}
	rotary, err := rope.ParseConfig(config)
	if err != nil {
		return nil, err
	}
	if rotary.HeadDim != dims.HeadDim || !(c.Epsilon >= 0) {
		return nil, invalid("heads of %d and %d elements, epsilon %v", rotary.HeadDim, dims.HeadDim, c.Epsilon)
	}
	m := &Model{dims: dims, epsilon: c.Epsilon}
	if m.table, err = rope.New(rotary); err != nil {
		return nil, err
	}
	header, err := safetensors.Parse(weights)
	if err != nil {
		return nil, invalid("weights: %v", err)
	}
	r := reader{weights, header, map[string]bool{}, nil}
	d, queries, keys, inner := dims.Hidden, dims.Heads*dims.HeadDim, dims.KVHeads*dims.HeadDim, dims.Intermediate
	m.embedding = r.read("model.embed_tokens.weight", dims.Vocabulary, d)
	m.norm = r.read("model.norm.weight", d)
	m.head = matrix{m.embedding, dims.Vocabulary, d}
	if !c.Tied {
		m.head.rows = r.read("lm_head.weight", dims.Vocabulary, d)
	}
	for i := range dims.Layers {
		if r.err != nil {
			break // a hostile configuration may have many layers
		}
		name := func(s string) string { return fmt.Sprintf("model.layers.%d.%s.weight", i, s) }
		linear := func(s string, out, in int) matrix { return matrix{r.read(name(s), out, in), out, in} }
		m.layers = append(m.layers, layer{
			attentionNorm: r.read(name("input_layernorm"), d), mlpNorm: r.read(name("post_attention_layernorm"), d),
			q:    linear("self_attn.q_proj", queries, d),
			k:    linear("self_attn.k_proj", keys, d),
			v:    linear("self_attn.v_proj", keys, d),
			o:    linear("self_attn.o_proj", d, queries),
			gate: linear("mlp.gate_proj", inner, d),
			up:   linear("mlp.up_proj", inner, d),
			down: linear("mlp.down_proj", d, inner),
		})
	}
	for _, t := range header.Tensors {
		if r.err == nil && strings.HasPrefix(t.Name, "model.") && !r.known[t.Name] {
			r.err = invalid("weights: %q has no place in a model of this kind", t.Name)
		}
	}
	return m, r.err
}

// Dims returns the dimensions of the model.
func (m *Model) Dims() blend.Dims { return m.dims }

// Table returns the rotations of the model.
func (m *Model) Table() *rope.Table { return m.table }

// Shape returns that of the model's KV in a dtype.
func (m *Model) Shape(d rope.DType) blend.Shape {
	return blend.Shape{Layers: m.dims.Layers, Heads: m.dims.KVHeads, HeadDim: m.dims.HeadDim, DType: d}
}

// reader reads tensors until the first error.
type reader struct {
	file   []byte
	header *safetensors.Header
	known  map[string]bool // what was read
	err    error
}

func (r *reader) read(name string, shape ...int) []float32 {
	if r.err != nil {
		return nil
	}
	r.known[name] = true
	i := slices.IndexFunc(r.header.Tensors, func(t safetensors.Tensor) bool { return t.Name == name })
	if i < 0 {
		r.err = invalid("weights: there is no tensor %q", name)
		return nil
	}
	t := &r.header.Tensors[i]
	d, known := map[safetensors.DType]rope.DType{"F32": rope.F32, "F16": rope.F16, "BF16": rope.BF16}[t.DType]
	if !known || !slices.Equal(t.Shape, shape) {
		r.err = invalid("weights: %q has dtype %s and shape %v; it must be a float of %v",
			name, t.DType, t.Shape, shape)
		return nil
	}
	out := make([]float32, int(t.Size)/d.Size())
	d.Decode(out, t.Bytes(r.file))
	return out
}

// matrix has a row for each output.
type matrix struct {
	rows    []float32
	out, in int
}

// apply returns the product with each row of x.
func (w matrix) apply(x []float32) []float32 {
	n := len(x) / w.in
	y := make([]float32, n*w.out)
	for i := range n {
		row, to := x[i*w.in:(i+1)*w.in], y[i*w.out:(i+1)*w.out]
		o := 0
		for ; o+4 <= w.out; o += 4 {
			a, b := w.rows[o*w.in:][:len(row)], w.rows[(o+1)*w.in:][:len(row)]
			c, d := w.rows[(o+2)*w.in:][:len(row)], w.rows[(o+3)*w.in:][:len(row)]
			var s, t, u, v float32
			for j, e := range row {
				s += float32(e * a[j])
				t += float32(e * b[j])
				u += float32(e * c[j])
				v += float32(e * d[j])
			}
			to[o], to[o+1], to[o+2], to[o+3] = s, t, u, v
		}
		for ; o < w.out; o++ {
			to[o] = dot(row, w.rows[o*w.in:(o+1)*w.in])
		}
	}
	return y
}

func dot(a, b []float32) float32 {
	b = b[:len(a)]
	var s float32
	for i, x := range a {
		s += float32(x * b[i])
	}
	return s
}

// normalize returns the rows of x over their root mean square, times weights.
func (m *Model) normalize(x, weights []float32) []float32 {
	y, d := make([]float32, len(x)), len(weights)
	for i := 0; i < len(x); i += d {
		row := x[i : i+d]
		scale := float32(1 / math.Sqrt(float64(dot(row, row)/float32(d)+m.epsilon)))
		for j, e := range row {
			y[i+j] = float32(e*scale) * weights[j]
		}
	}
	return y
}
