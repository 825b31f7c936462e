package enginecore

import (
	"fmt"

	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/internal/pyvalue"
)

// outputFields has the fields of an Output, whose zero values are Python's defaults.
var outputFields = map[string]fieldReader[Output]{
	"request_id": {needed: true, read: func(r *reader, o *Output) (err error) {
		o.RequestID, err = r.Text("request_id")
		return err
	}},
	"new_token_ids": {needed: true, read: func(r *reader, o *Output) (err error) {
		o.NewTokenIDs, err = r.Tokens("new_token_ids")
		return err
	}},
	"pooling_output": {read: func(r *reader, o *Output) (err error) {
		if !r.Nil() {
			o.PoolingOutput, err = pyvalue.ReadTensor(r.Decoder)
		}
		return err
	}},
	"finish_reason": {needed: true, read: func(r *reader, o *Output) (err error) {
		o.FinishReason, err = codec.ReadOptional(r.Decoder, "finish_reason", func(what string) (FinishReason, error) {
			n, err := r.Int(what)
			return FinishReason(n), err
		})
		return err
	}},
	"stop_reason": {needed: true, read: func(r *reader, o *Output) (err error) {
		const what = "stop_reason"
		switch k := r.Peek(); k {
		case codec.KindNil, codec.KindInt, codec.KindStr:
			o.StopReason, err = pyvalue.Read(r.Decoder, what, false)
			return err
		default:
			return r.Corrupt(what, "a token, a string or nil", k.String())
		}
	}},
	"events": {read: func(r *reader, o *Output) (err error) {
		if !r.Nil() {
			o.Events, err = r.events()
		}
		return err
	}},
	"trace_headers": {read: func(r *reader, o *Output) (err error) {
		if !r.Nil() {
			o.TraceHeaders, err = r.TextMap("trace_headers")
		}
		return err
	}},
	"routed_experts": {read: func(r *reader, o *Output) (err error) {
		if !r.Nil() {
			o.RoutedExperts, err = pyvalue.ReadNDArray(r.Decoder)
		}
		return err
	}},
	"mm_cache_miss_hashes": {needed: true, read: func(r *reader, o *Output) (err error) {
		if !r.Nil() {
			o.MMCacheMissHashes, err = r.Texts("mm_cache_miss_hashes")
		}
		return err
	}},
	"error": {read: func(r *reader, o *Output) (err error) {
		if !r.Nil() {
			o.Error, err = r.requestError()
		}
		return err
	}},
	"new_logprobs":                 anyOutput("new_logprobs", func(o *Output) *any { return &o.Logprobs }),
	"new_prompt_logprobs_tensors":  anyOutput("new_prompt_logprobs_tensors", func(o *Output) *any { return &o.PromptLogprobs }),
	"kv_transfer_params":           anyOutput("kv_transfer_params", func(o *Output) *any { return &o.KVTransferParams }),
	"ec_transfer_params":           anyOutput("ec_transfer_params", func(o *Output) *any { return &o.ECTransferParams }),
	"prefill_stats":                anyOutput("prefill_stats", func(o *Output) *any { return &o.PrefillStats }),
	"new_sampling_mask":            anyOutput("new_sampling_mask", func(o *Output) *any { return &o.SamplingMask }),
	"spec_decode_metrics":          anyOutput("spec_decode_metrics", func(o *Output) *any { return &o.SpecDecodeMetrics }),
	"prompt_token_id_logprobs":     anyOutput("prompt_token_id_logprobs", func(o *Output) *any { return &o.PromptTokenIDLogprobs }),
	"num_cached_tokens":            intOutput("num_cached_tokens", func(o *Output) *int { return &o.NumCachedTokens }),
	"num_external_computed_tokens": intOutput("num_external_computed_tokens", func(o *Output) *int { return &o.NumExternalComputedTokens }),
	"num_nans_in_logits":           intOutput("num_nans_in_logits", func(o *Output) *int { return &o.NumNaNsInLogits }),
}

// anyOutput is a field that is None or whatever the engine reports.
func anyOutput(name string, at func(*Output) *any) fieldReader[Output] {
	return fieldReader[Output]{read: func(r *reader, o *Output) (err error) {
		*at(o), err = pyvalue.Read(r.Decoder, name, true)
		return err
	}}
}

func intOutput(name string, at func(*Output) *int) fieldReader[Output] {
	return fieldReader[Output]{read: func(r *reader, o *Output) (err error) {
		*at(o), err = r.Int(name)
		return err
	}}
}

func (r *reader) events() ([]Event, error) {
	n, err := r.Array("events")
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

func (r *reader) requestError() (*RequestError, error) {
	e := &RequestError{}
	err := r.Object("error", []string{"code", "message"}, func(name string) (bool, error) {
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
