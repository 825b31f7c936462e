package enginecore_test

import (
	"math"
	"slices"

	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/serde/enginecore"
)

func drawSome[T any](t *rapid.T, name string, draw func() T) *T {
	if rapid.Bool().Draw(t, name) {
		v := draw()
		return &v
	}
	return nil
}

func drawAny(t *rapid.T, depth int) any {
	switch rapid.IntRange(0, 8).Draw(t, "any") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return rapid.Int64().Draw(t, "int")
	case 3:
		return rapid.Uint64Min(1<<63).Draw(t, "uint")
	case 4:
		return rapid.Float64().Draw(t, "float")
	case 5:
		return rapid.String().Draw(t, "text")
	case 6:
		return rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "bytes")
	case 7:
		out := []any{}
		for range rapid.IntRange(0, 3-depth).Draw(t, "list") {
			out = append(out, drawAny(t, depth+1))
		}
		return out
	}
	if rapid.Bool().Draw(t, "ordered") {
		m := &serde.Map{Keys: []any{}, Values: []any{}}
		for i := range rapid.IntRange(1, 3).Draw(t, "entries") {
			m.Keys, m.Values = append(m.Keys, int64(i)), append(m.Values, drawLeaf(t))
		}
		return m
	}
	return drawMap(t, depth+1)
}

func drawLeaf(t *rapid.T) any { return rapid.Int64().Draw(t, "leaf") }

func drawMap(t *rapid.T, depth int) map[string]any {
	out := map[string]any{}
	for range rapid.IntRange(0, max(0, 3-depth)).Draw(t, "map") {
		out[rapid.String().Draw(t, "key")] = drawAny(t, depth+1)
	}
	return out
}

func drawRequest(t *rapid.T, p pair) *enginecore.Request {
	g := p.gen
	text := rapid.String()
	has := func(name string) bool { return slices.Contains(g.RequestFields, name) }
	r := &enginecore.Request{
		RequestID:      text.Draw(t, "id"),
		PromptTokenIDs: rapid.SliceOfN(rapid.Uint32(), 1, 300).Draw(t, "prompt"),
		EOSTokenID:     drawSome(t, "eos", func() uint32 { return rapid.Uint32Max(math.MaxInt32).Draw(t, "eos token") }),
		ArrivalTime:    rapid.Float64().Draw(t, "arrival"),
		CacheSalt:      drawSome(t, "salt", func() string { return text.Draw(t, "salt text") }),
		DataParallelRank: drawSome(t, "rank", func() int {
			return rapid.IntRange(0, 1000).Draw(t, "rank number")
		}),
		ClientIndex: rapid.IntRange(0, 300).Draw(t, "client"),
		CurrentWave: rapid.IntRange(0, 300).Draw(t, "wave"),
		Priority:    rapid.IntRange(-300, 300).Draw(t, "priority"),
	}
	n := len(r.PromptTokenIDs)
	if rapid.Bool().Draw(t, "embeds") {
		r.PromptEmbeds = &serde.Tensor{DType: "float32", Shape: []int{n, 2}, Data: seq(8*n, 3, 1)}
		switch rapid.IntRange(0, 2).Draw(t, "both") {
		case 0:
			r.PromptTokenIDs = nil
		case 1:
			if has("prompt_is_token_ids") {
				r.PromptIsTokenIDs = rapid.SliceOfN(rapid.Bool(), n, n).Draw(t, "which")
			}
		}
	}
	for range rapid.IntRange(0, 2).Draw(t, "features") {
		f := enginecore.Feature{
			Modality: text.Draw(t, "modality"), Identifier: text.Draw(t, "identifier"),
			Offset: rapid.IntRange(0, 1<<20).Draw(t, "offset"), Length: rapid.IntRange(0, 400).Draw(t, "length"),
		}
		if rapid.Bool().Draw(t, "data") {
			f.Data = drawItem(t, g.ItemForm)
		}
		if rapid.Bool().Draw(t, "mask") {
			f.IsEmbed = &serde.Tensor{DType: "bool", Shape: []int{f.Length}, Data: seq(f.Length, 0, 1)}
		}
		if g.FeatureHash {
			f.MMHash = drawSome(t, "hash", func() string { return text.Draw(t, "hash text") })
		}
		r.Features = append(r.Features, f)
	}
	if rapid.Bool().Draw(t, "pooling") {
		r.Params = p.pooling(t, map[string]any{"task": "embed", "dimensions": rapid.Int64Range(1, 99).Draw(t, "dimensions"), "extra_kwargs": drawMap(t, 0)})
		r.EOSTokenID = nil
	} else {
		r.Params = p.sampling(t, map[string]any{
			"temperature": rapid.Float64Range(0, 2).Draw(t, "temperature"), "max_tokens": rapid.Int64Range(1, 9).Draw(t, "max"),
			"ignore_eos": rapid.Bool().Draw(t, "ignore"), "extra_args": drawMap(t, 0),
		})
	}
	if rapid.Bool().Draw(t, "lora") {
		r.LoRA = &enginecore.LoRA{
			Name: text.Draw(t, "name"), ID: rapid.IntRange(1, 1000).Draw(t, "lora id"), Path: "/p", BaseModelName: drawSome(t, "base", func() string { return "b" }),
			LoadInPlace: slices.Contains(g.Params.LoRA, "load_inplace"), Is3DWeight: slices.Contains(g.Params.LoRA, "is_3d_lora_weight"),
		}
	}
	if rapid.Bool().Draw(t, "headers") {
		r.TraceHeaders = map[string]string{"a": text.Draw(t, "header"), "b": ""}
	}
	r.Resumable = has("resumable") && rapid.Bool().Draw(t, "resumable")
	r.AbortImmediately = has("abort_immediately") && rapid.Bool().Draw(t, "abort")
	if has("external_req_id") {
		r.ExternalReqID = drawSome(t, "external", func() string { return text.Draw(t, "external id") })
	}
	if has("reasoning_ended") {
		r.ReasoningEnded = drawSome(t, "reasoning", func() bool { return rapid.Bool().Draw(t, "ended") })
	}
	if has("reasoning_parser_kwargs") && rapid.Bool().Draw(t, "kwargs") {
		r.ReasoningParserKwargs = drawMap(t, 0)
	}
	if has("session_id") {
		r.SessionID = drawSome(t, "session", func() string { return text.Draw(t, "session id") })
	}
	if has("kv_hints") && rapid.Bool().Draw(t, "hints") {
		r.KVHints = &enginecore.KVHints{ProtocolVersion: "1", MessageID: text.Draw(t, "message"), Actions: []enginecore.KVHintAction{{ID: "i", Type: "t", Version: "v", Payload: drawMap(t, 0)}}}
	}
	return r
}

// drawItem is an item with tensors on both sides of the threshold, in nested lists too.
func drawItem(t *rapid.T, form pycompat.ItemForm) *serde.Item {
	tensor := func() *serde.Tensor {
		n := rapid.SampledFrom([]int{0, 3, 300}).Draw(t, "bytes")
		return &serde.Tensor{DType: "uint8", Shape: []int{n}, Data: seq(n, 3, 1)}
	}
	it := &serde.Item{Elems: []serde.Elem{
		{Key: "a", Data: tensor()},
		{Key: "b", Data: []any{tensor(), int64(1), []any{tensor()}}, Field: serde.FlatFromSizes(2, 1)},
	}}
	if form != pycompat.ItemMap {
		it.Modality = "image"
	}
	return it
}

func drawPair(t *rapid.T) pair {
	return newPair(t, rapid.SampledFrom(pycompat.Releases()).Draw(t, "vllm"),
		rapid.SampledFrom([]int{0, -1, 1, 8, 256, 1 << 20}).Draw(t, "threshold"))
}
