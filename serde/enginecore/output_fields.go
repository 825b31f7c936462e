package enginecore

import (
	"fmt"

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
	"events":         {read: codec.OrNone(func(o *Output) *[]Event { return &o.Events }, (*reader).events)},
	"trace_headers":  {read: codec.OrNone(func(o *Output) *map[string]string { return &o.TraceHeaders }, (*reader).TextMap)},
	"routed_experts": {read: codec.OrNone(func(o *Output) **serde.NDArray { return &o.RoutedExperts }, (*reader).ndarray)},
	"mm_cache_miss_hashes": {true, codec.OrNone(
		func(o *Output) *[]string { return &o.MMCacheMissHashes }, (*reader).Texts)},
	"error":                        {read: codec.OrNone(func(o *Output) **RequestError { return &o.Error }, (*reader).requestError)},
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

func (r *reader) events(what string) ([]Event, error) {
	n, err := r.Array(what)
	if err != nil {
		return nil, err
	}
	out := make([]Event, 0, codec.Small(n))
	for range n {
		var v Event
		err := r.Object("event", []string{"type", "timestamp"}, func(name string) (bool, error) {
			var err error
			switch name {
			case "type":
				var n int
				n, err = r.Int(name)
				v.Type = EventType(n)
			case "timestamp":
				v.Timestamp, err = r.Float(name)
			default:
				return false, nil
			}
			return true, err
		})
		if err != nil {
			return nil, fmt.Errorf("events: %w", err)
		}
		out = append(out, v)
	}
	return out, nil
}

func (r *reader) requestError(what string) (*RequestError, error) {
	e := &RequestError{}
	err := r.Object(what, []string{"code", "message"}, func(name string) (bool, error) {
		var err error
		switch name {
		case "code":
			e.Code, err = r.Text(name)
		case "message":
			e.Message, err = r.Text(name)
		case "retryable":
			e.Retryable, err = r.Bool(name)
		default:
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}
