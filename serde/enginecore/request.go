package enginecore

import "github.com/ringcache/ringcache/serde"

// Request is one request as a frontend sends it to EngineCore
// (EngineCoreRequest in vllm/v1/engine/__init__.py, 0.11.0 to 0.33.0).
//
// On the wire it is an array without names, whose fields are those of
// [pycompat.Generation].RequestFields. The zero value of a field is what Python
// has by default; a nil pointer, map or slice is None. A field that a
// generation does not have can only be encoded as its zero value.
type Request struct {
	// RequestID is the id that the engine knows the request by.
	RequestID string
	// PromptTokenIDs is the prompt; nil is None, which goes with PromptEmbeds.
	PromptTokenIDs []uint32
	// Features are the multimodal inputs in the order of their places; nil is
	// None.
	Features []Feature
	// Params are the sampling or pooling parameters, of [Codec.ParseSampling] or
	// [Codec.ParsePooling].
	Params *Params
	// EOSTokenID is the token that ends the text, nil if there is none. Until
	// 0.16.0 it is a field of the request, from 0.17.0 on a part of the sampling
	// parameters; [Codec.EncodeRequest] puts it where the generation has it.
	EOSTokenID *uint32
	// ArrivalTime is in seconds, by the clock of Python's time.time.
	ArrivalTime float64
	LoRA        *LoRA
	// CacheSalt keeps the prefix cache of this request apart.
	CacheSalt        *string
	DataParallelRank *int
	// PromptEmbeds are embeddings in place of tokens. Decoded ones are a view of
	// the frames.
	PromptEmbeds *serde.Tensor
	// PromptIsTokenIDs reports for each place of the prompt whether it is a token
	// (true) or an embedding (0.21.0 on).
	PromptIsTokenIDs []bool
	// ClientIndex chooses the output socket that answers go to.
	ClientIndex int
	// CurrentWave counts the waves of data parallel engines.
	CurrentWave int
	// Priority is lower for what goes first.
	Priority     int
	TraceHeaders map[string]string
	// Resumable: more input follows under the same id (0.15.0 on).
	Resumable bool
	// ExternalReqID is the id that the frontend's client knows (0.14.0 on).
	ExternalReqID *string
	// ReasoningEnded is for structured outputs of models that reason (0.16.0 on).
	ReasoningEnded *bool
	// ReasoningParserKwargs are values as [Codec.ParseSampling] takes them (0.20.1 on).
	ReasoningParserKwargs map[string]any
	// AbortImmediately ends the request where it arrives (0.21.0 on).
	AbortImmediately bool
	// SessionID names a conversation (0.28.0 on).
	SessionID *string
	// KVHints are passed to a connector of the KV cache (0.31.0 on).
	KVHints *KVHints
}

// LoRA is vLLM's LoRARequest (vllm/lora/request.py). Fields of it that are not
// here are written with their defaults and passed over when read.
type LoRA struct {
	Name string
	// ID is at least 1 and unique for each adapter.
	ID int
	// Path is where the engine finds the adapter; the engine refuses an empty
	// one.
	Path          string
	BaseModelName *string
	// LoadInPlace loads the adapter again (0.15.0 on).
	LoadInPlace bool
	// Is3DWeight is for weights of experts in three dimensions (0.22.0 on).
	Is3DWeight bool
}

// KVHints is vLLM's KvHintsEnvelope (vllm/v1/kv_hints/protocol.py, 0.31.0 on).
type KVHints struct {
	ProtocolVersion string
	MessageID       string
	Actions         []KVHintAction
}

// KVHintAction is one KvHintAction of [KVHints].
type KVHintAction struct {
	ID, Type, Version string
	// Payload has values as [Codec.ParseSampling] takes them.
	Payload map[string]any
}
