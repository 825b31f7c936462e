package engine

import (
	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// Request is a prompt to be completed. It has only fields that can be sent. Adapters (LoRA) have none: an engine
// that can't load the adapter of a request ends, with everything that it runs.
type Request struct {
	// ID is for messages and logs; the engine gets one of its own.
	ID string
	// Prompt are its tokens, with the placeholders of items expanded.
	Prompt []uint32
	// Params are the sampling parameters by their names in vLLM, see [enginecore.Codec.ParseSampling].
	// Numbers that are whole for vLLM, such as "max_tokens", must be of a whole type: of
	// JSON, use json.Decoder.UseNumber, and make whole numbers whole. "n" above 1 runs as
	// many children, whose outputs have an Index. Without "max_tokens" vLLM makes 16
	// tokens.
	Params map[string]any
	// EOS is the token that ends a text, nil for none. If there are more of them (as
	// generation_config.json may list) they belong into "stop_token_ids".
	EOS *uint32

	// Items are the request's multimodal items, every one obtained; nil if there
	// are none. Generate commits them, and they end with the stream. If Generate fails
	// they are as before, for Rollback or another try.
	Items *mmcache.Request
	// Placeholders are where in the prompt the items belong, one for each, in
	// their order, which is that of the prompt.
	Placeholders []Placeholder

	// Priority is lower for what the engine runs first.
	Priority int
	// CacheSalt keeps the prefix cache of this request apart; empty is none.
	CacheSalt string
	// SessionID names a conversation (vLLM 0.28.0 on); empty is none.
	SessionID string
	// TraceHeaders belong to the trace that the request is part of. They,
	// ReasoningParserKwargs and KVHints must not change before the stream has ended.
	TraceHeaders map[string]string
	// ReasoningEnded is for structured outputs of models that reason (0.16.0 on),
	// ReasoningParserKwargs has values as Params has them (0.20.1 on).
	ReasoningEnded        *bool
	ReasoningParserKwargs map[string]any
	// KVHints are passed to a connector of the KV cache (0.31.0 on).
	KVHints *enginecore.KVHints

	params *enginecore.Params // Params, once they are verified
}

// Placeholder is an item's range in the prompt.
type Placeholder struct {
	// Modality is that of the item; empty is "image".
	Modality string
	// Offset is the place of the first token, Length the number of tokens.
	Offset, Length int
	// IsEmbed reports for each token of the range whether it takes an embedding; nil
	// if all do.
	IsEmbed []bool
}

func (p Placeholder) modality() string {
	if p.Modality == "" {
		return "image"
	}
	return p.Modality
}

// embeds returns the number of embeddings that the range takes.
func (p Placeholder) embeds() int {
	if p.IsEmbed == nil {
		return p.Length
	}
	n := 0
	for _, e := range p.IsEmbed {
		if e {
			n++
		}
	}
	return n
}

// feature returns what is sent for an item.
func (p Placeholder) feature(w *mmcache.Wire) enginecore.Feature {
	f := enginecore.Feature{
		Address: w.Handle, Modality: p.modality(), Identifier: w.Key, MMHash: &w.Key,
		Offset: p.Offset, Length: p.Length,
	}
	if w.Handle == nil {
		f.Data = w.Item()
	}
	if p.IsEmbed != nil {
		mask := make([]byte, len(p.IsEmbed))
		for i, e := range p.IsEmbed {
			if e {
				mask[i] = 1
			}
		}
		f.IsEmbed = &serde.Tensor{DType: "bool", Shape: []int{len(mask)}, Data: mask}
	}
	return f
}
