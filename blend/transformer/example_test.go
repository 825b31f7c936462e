package transformer_test

import (
	"fmt"
	"log"

	"github.com/ringcache/ringcache/blend"
	"github.com/ringcache/ringcache/blend/rope"
	"github.com/ringcache/ringcache/blend/transformer"
	"github.com/ringcache/ringcache/encoder/safetensors"
)

// The KV of a prompt, by a model of one layer whose weights are zeros.
func Example() {
	const config = `{"vocab_size": 8, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
		"num_key_value_heads": 1, "head_dim": 4, "intermediate_size": 8, "rms_norm_eps": 1e-5,
		"tie_word_embeddings": true}`
	layer := "model.layers.0."
	var tensors []safetensors.Tensor
	for name, shape := range map[string][]int{
		"model.embed_tokens": {8, 8}, "model.norm": {8},
		layer + "input_layernorm": {8}, layer + "post_attention_layernorm": {8},
		layer + "self_attn.q_proj": {8, 8}, layer + "self_attn.k_proj": {4, 8},
		layer + "self_attn.v_proj": {4, 8}, layer + "self_attn.o_proj": {8, 8},
		layer + "mlp.gate_proj": {8, 8}, layer + "mlp.up_proj": {8, 8}, layer + "mlp.down_proj": {8, 8},
	} {
		tensors = append(tensors, safetensors.Tensor{Name: name + ".weight", DType: "BF16", Shape: shape})
	}
	weights, err := safetensors.AppendHeader(nil, nil, tensors)
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range tensors {
		weights = append(weights, make([]byte, t.Size)...)
	}
	model, err := transformer.Load([]byte(config), weights)
	if err != nil {
		log.Fatal(err)
	}

	prompt := []int64{1, 2, 3}
	kv, err := blend.New(model.Shape(rope.F16), len(prompt))
	if err != nil {
		log.Fatal(err)
	}
	result, err := model.Prefill(kv, prompt, 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(kv.Bytes), "bytes of KV; logits of", len(result.Logits), "rows, of",
		len(result.Logits[0]), "tokens each")
	// Output:
	// 48 bytes of KV; logits of 3 rows, of 8 tokens each
}
