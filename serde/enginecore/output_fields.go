package enginecore

import (
	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/internal/pyvalue"
	"github.com/ringcache/ringcache/serde"
)

// outputFields has the fields of an Output, whose zero values are Python's defaults.
var outputFields = map[string]fieldReader[Output]{
	"request_id":     {true, codec.Value(func(o *Output) *string { return &o.RequestID }, (*reader).Text)},
	"new_token_ids":  {true, codec.Value(func(o *Output) *[]uint32 { return &o.NewTokenIDs }, (*reader).Tokens)},
	"pooling_output": {read: codec.OrNone(func(o *Output) **serde.Tensor { return &o.PoolingOutput }, (*reader).tensor)},
	"finish_reason":  {true, codec.Optional(func(o *Output) **FinishReason { return &o.FinishReason }, (*reader).finishReason)},
	"stop_reason":    {true, codec.Value(func(o *Output) *any { return &o.StopReason }, (*reader).stopReason)},
	"events":         {read: codec.OrNone(func(o *Output) *[]Event { return &o.Events }, codec.ListOf(readEvent))},
	"trace_headers":  {read: codec.OrNone(func(o *Output) *map[string]string { return &o.TraceHeaders }, (*reader).TextMap)},
	"routed_experts": {read: codec.OrNone(func(o *Output) **serde.NDArray { return &o.RoutedExperts }, (*reader).ndarray)},
	"mm_cache_miss_hashes": {true, codec.OrNone(
		func(o *Output) *[]string { return &o.MMCacheMissHashes }, (*reader).Texts)},
	"error":                        {read: codec.Optional(func(o *Output) **RequestError { return &o.Error }, readError)},
	"new_logprobs":                 anyOutput(func(o *Output) *any { return &o.Logprobs }),
	"new_prompt_logprobs_tensors":  anyOutput(func(o *Output) *any { return &o.PromptLogprobs }),
	"kv_transfer_params":           anyOutput(func(o *Output) *any { return &o.KVTransferParams }),
	"ec_transfer_params":           anyOutput(func(o *Output) *any { return &o.ECTransferParams }),
	"prefill_stats":                anyOutput(func(o *Output) *any { return &o.PrefillStats }),
	"new_sampling_mask":            anyOutput(func(o *Output) *any { return &o.SamplingMask }),
	"spec_decode_metrics":          anyOutput(func(o *Output) *any { return &o.SpecDecodeMetrics }),
	"prompt_token_id_logprobs":     anyOutput(func(o *Output) *any { return &o.PromptTokenIDLogprobs }),
	"num_cached_tokens":            intOutput(func(o *Output) *int { return &o.NumCachedTokens }),
	"num_external_computed_tokens": intOutput(func(o *Output) *int { return &o.NumExternalComputedTokens }),
	"num_nans_in_logits":           intOutput(func(o *Output) *int { return &o.NumNaNsInLogits }),
}

// anyOutput is a field that is None or whatever the engine reports.
func anyOutput(at func(*Output) *any) fieldReader[Output] {
	return fieldReader[Output]{read: codec.Value(at, (*reader).anything)}
}

func intOutput(at func(*Output) *int) fieldReader[Output] {
	return fieldReader[Output]{read: codec.Value(at, (*reader).Int)}
}

func (r *reader) tensor(string) (*serde.Tensor, error) { return pyvalue.ReadTensor(r.Decoder) }

func (r *reader) ndarray(string) (*serde.NDArray, error) { return pyvalue.ReadNDArray(r.Decoder) }

func (r *reader) finishReason(what string) (FinishReason, error) {
	n, err := r.Int(what)
	return FinishReason(n), err
}

func (r *reader) stopReason(what string) (any, error) {
	switch k := r.Peek(); k {
	case codec.KindNil, codec.KindInt, codec.KindStr:
		return r.plain(what)
	default:
		return nil, r.Corrupt(what, "a token, a string or nil", k.String())
	}
}

var readEvent = codec.Fields[*reader, Event]{
	"type":      codec.Value(func(e *Event) *EventType { return &e.Type }, (*reader).eventType),
	"timestamp": codec.Value(func(e *Event) *float64 { return &e.Timestamp }, (*reader).Float),
}.Object("type", "timestamp")

func (r *reader) eventType(what string) (EventType, error) {
	n, err := r.Int(what)
	return EventType(n), err
}

var readError = codec.Fields[*reader, RequestError]{
	"code":      codec.Value(func(e *RequestError) *string { return &e.Code }, (*reader).Text),
	"message":   codec.Value(func(e *RequestError) *string { return &e.Message }, (*reader).Text),
	"retryable": codec.Value(func(e *RequestError) *bool { return &e.Retryable }, (*reader).Bool),
}.Object("code", "message")
