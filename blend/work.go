package blend

import (
	"encoding/json"
	"slices"
)

// Dims are what of a model decides how much is computed: a decoder of the Llama family.
type Dims struct {
	Layers, Hidden, Heads, KVHeads, HeadDim, Intermediate, Vocabulary int
}

// ParseDims reads dimensions from a model's config.json. Models that are computed otherwise are refused:
// those with experts, with one latent vector for all heads, or with layers that do not attend to all tokens
// in front.
func ParseDims(config []byte) (Dims, error) {
	var c struct {
		Layers       int `json:"num_hidden_layers"`
		Hidden       int `json:"hidden_size"`
		Heads        int `json:"num_attention_heads"`
		KVHeads      int `json:"num_key_value_heads"`
		HeadDim      int `json:"head_dim"`
		Intermediate int `json:"intermediate_size"`
		Vocabulary   int `json:"vocab_size"`
	}
	var other struct {
		Experts    int      `json:"num_experts"`
		Mixtral    int      `json:"num_local_experts"`
		DeepSeek   int      `json:"n_routed_experts"`
		Latent     int      `json:"kv_lora_rank"`
		Window     int      `json:"sliding_window"`
		UseWindow  *bool    `json:"use_sliding_window"` // true if it is not there
		LayerTypes []string `json:"layer_types"`
	}
	if err := json.Unmarshal(config, &c); err != nil {
		return Dims{}, invalid("no configuration of a model: %v", err)
	}
	if err := json.Unmarshal(config, &other); err != nil {
		return Dims{}, invalid("no configuration of a model: %v", err)
	}
	switch {
	case other.Experts > 1 || other.Mixtral > 1 || other.DeepSeek > 1:
		return Dims{}, invalid("a model with experts")
	case other.Latent != 0:
		return Dims{}, invalid("a model with one latent vector for all heads (MLA)")
	case other.Window != 0 && (other.UseWindow == nil || *other.UseWindow) ||
		slices.ContainsFunc(other.LayerTypes, func(kind string) bool { return kind != "full_attention" }):
		return Dims{}, invalid("a model whose layers do not all attend to all tokens in front")
	}
	d := Dims(c)
	if d.KVHeads == 0 {
		d.KVHeads = d.Heads
	}
	if d.HeadDim == 0 && d.Heads > 0 {
		d.HeadDim = d.Hidden / d.Heads
	}
	return d, d.Validate()
}

// Validate reports what is wrong with dimensions.
func (d Dims) Validate() error {
	for _, n := range []int{d.Layers, d.Hidden, d.Heads, d.KVHeads, d.HeadDim, d.Intermediate, d.Vocabulary} {
		if n < 1 || n > maxWidth {
			return invalid("a model of %+v: each is 1 to %d", d, maxWidth)
		}
	}
	if d.Heads%d.KVHeads != 0 {
		return invalid("%d heads of queries for %d of keys", d.Heads, d.KVHeads)
	}
	return nil
}

// Work is an estimate by formula, and no measurement.
type Work struct {
	// FLOPs are floating-point operations: two for each weight that a token meets, and four for each element
	// of its queries and each token that it attends to. What normalises and rotates is not counted.
	FLOPs float64 `json:"flops"`
	// Rows is for how many tokens a layer was computed, of all layers.
	Rows int64 `json:"rows"`
}

// Prefill estimates the work of the tokens behind a prefix whose KV is there, up to the logits of the last
// one.
func (d Dims) Prefill(tokens, prefix int) Work {
	rows := float64(tokens - prefix)
	// The sum of the tokens that each one attends to.
	attended := float64(tokens-prefix) * (float64(prefix) + float64(tokens-prefix+1)/2)
	layer := rows*(d.project()+d.rest()) + attended*d.attend()
	return Work{float64(d.Layers)*layer + d.logits(), int64(d.Layers) * int64(tokens-prefix)}
}

// Add adds the work of a step of a plan, once it is selected.
func (w *Work) Add(d Dims, s Step) {
	w.FLOPs += float64(len(s.Rows))*d.project() + float64(len(s.Attend))*d.rest()
	for _, row := range s.Attend {
		w.FLOPs += float64(row+1) * d.attend()
	}
	w.Rows += int64(len(s.Attend))
	if s.Layer == d.Layers-1 {
		w.FLOPs += d.logits()
	}
}

// project is for queries, keys and values of a token in a layer; rest for what is behind attention.
func (d Dims) project() float64 {
	return 2 * float64(d.Hidden) * float64(d.HeadDim) * float64(d.Heads+2*d.KVHeads)
}

func (d Dims) rest() float64 {
	return 2 * float64(d.Hidden) * (float64(d.HeadDim)*float64(d.Heads) + 3*float64(d.Intermediate))
}

func (d Dims) attend() float64 { return 4 * float64(d.Heads) * float64(d.HeadDim) }

func (d Dims) logits() float64 { return 2 * float64(d.Hidden) * float64(d.Vocabulary) }
