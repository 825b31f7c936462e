package serde

import "fmt"

// outputField is a field of EngineCoreOutput on the wire. Its zero value is
// Python's default.
type outputField struct {
	// needed: without it the frontend can't go on with the request.
	needed bool
	set    func(*EngineCoreOutput) bool
	encode func(*encoder, *EngineCoreOutput)
	decode func(*decoder, *EngineCoreOutput) error
}

var outputTable = map[string]outputField{
	"request_id": {
		needed: true,
		set:    func(o *EngineCoreOutput) bool { return true },
		encode: func(e *encoder, o *EngineCoreOutput) { e.str(o.RequestID) },
		decode: func(d *decoder, o *EngineCoreOutput) (err error) {
			o.RequestID, err = d.text("request_id")
			return err
		},
	},
	"new_token_ids": {
		needed: true,
		set:    func(o *EngineCoreOutput) bool { return true },
		encode: func(e *encoder, o *EngineCoreOutput) { e.tokens(o.NewTokenIDs) },
		decode: func(d *decoder, o *EngineCoreOutput) (err error) {
			o.NewTokenIDs, err = d.uint32s("new_token_ids")
			return err
		},
	},
	"new_logprobs":                anyOutput("new_logprobs", func(o *EngineCoreOutput) *any { return &o.Logprobs }),
	"new_prompt_logprobs_tensors": anyOutput("new_prompt_logprobs_tensors", func(o *EngineCoreOutput) *any { return &o.PromptLogprobs }),
	"pooling_output": {
		set: func(o *EngineCoreOutput) bool { return o.PoolingOutput != nil },
		encode: func(e *encoder, o *EngineCoreOutput) {
			if o.PoolingOutput == nil {
				e.null()
				return
			}
			e.tensor(o.PoolingOutput)
		},
		decode: func(d *decoder, o *EngineCoreOutput) (err error) {
			if !d.null() {
				o.PoolingOutput, err = d.tensor()
			}
			return err
		},
	},
	"finish_reason": {
		needed: true,
		set:    func(o *EngineCoreOutput) bool { return o.FinishReason != nil },
		encode: func(e *encoder, o *EngineCoreOutput) {
			encodeOptional(e, o.FinishReason, func(e *encoder, r FinishReason) { e.int(int(r)) })
		},
		decode: func(d *decoder, o *EngineCoreOutput) (err error) {
			o.FinishReason, err = optionalValue(d, "finish_reason", func(what string) (FinishReason, error) {
				n, err := d.anyInt(what)
				return FinishReason(n), err
			})
			return err
		},
	},
	"stop_reason": {
		needed: true,
		set:    func(o *EngineCoreOutput) bool { return o.StopReason != nil },
		encode: func(e *encoder, o *EngineCoreOutput) { e.stopReason(o.StopReason) },
		decode: func(d *decoder, o *EngineCoreOutput) (err error) {
			o.StopReason, err = d.stopReason()
			return err
		},
	},
	"events": {
		set: func(o *EngineCoreOutput) bool { return o.Events != nil },
		encode: func(e *encoder, o *EngineCoreOutput) {
			if o.Events == nil {
				e.null()
				return
			}
			e.events(o.Events)
		},
		decode: func(d *decoder, o *EngineCoreOutput) (err error) {
			if !d.null() {
				o.Events, err = d.events()
			}
			return err
		},
	},
	"kv_transfer_params": anyOutput("kv_transfer_params", func(o *EngineCoreOutput) *any { return &o.KVTransferParams }),
	"ec_transfer_params": anyOutput("ec_transfer_params", func(o *EngineCoreOutput) *any { return &o.ECTransferParams }),
	"trace_headers": {
		set:    func(o *EngineCoreOutput) bool { return o.TraceHeaders != nil },
		encode: func(e *encoder, o *EngineCoreOutput) { e.textMap(o.TraceHeaders) },
		decode: func(d *decoder, o *EngineCoreOutput) (err error) {
			if !d.null() {
				o.TraceHeaders, err = d.textMap("trace_headers")
			}
			return err
		},
	},
	"prefill_stats":                anyOutput("prefill_stats", func(o *EngineCoreOutput) *any { return &o.PrefillStats }),
	"num_cached_tokens":            intOutput("num_cached_tokens", func(o *EngineCoreOutput) *int { return &o.NumCachedTokens }),
	"num_external_computed_tokens": intOutput("num_external_computed_tokens", func(o *EngineCoreOutput) *int { return &o.NumExternalComputedTokens }),
	"routed_experts": {
		set: func(o *EngineCoreOutput) bool { return o.RoutedExperts != nil },
		encode: func(e *encoder, o *EngineCoreOutput) {
			if o.RoutedExperts == nil {
				e.null()
				return
			}
			e.ndarray(o.RoutedExperts)
		},
		decode: func(d *decoder, o *EngineCoreOutput) (err error) {
			if !d.null() {
				o.RoutedExperts, err = d.ndarray()
			}
			return err
		},
	},
	"num_nans_in_logits": intOutput("num_nans_in_logits", func(o *EngineCoreOutput) *int { return &o.NumNaNsInLogits }),
	"mm_cache_miss_hashes": {
		needed: true,
		set:    func(o *EngineCoreOutput) bool { return o.MMCacheMissHashes != nil },
		encode: func(e *encoder, o *EngineCoreOutput) {
			if o.MMCacheMissHashes == nil {
				e.null()
				return
			}
			e.texts(o.MMCacheMissHashes)
		},
		decode: func(d *decoder, o *EngineCoreOutput) (err error) {
			if !d.null() {
				o.MMCacheMissHashes, err = d.texts("mm_cache_miss_hashes")
			}
			return err
		},
	},
	"new_sampling_mask":        anyOutput("new_sampling_mask", func(o *EngineCoreOutput) *any { return &o.SamplingMask }),
	"spec_decode_metrics":      anyOutput("spec_decode_metrics", func(o *EngineCoreOutput) *any { return &o.SpecDecodeMetrics }),
	"prompt_token_id_logprobs": anyOutput("prompt_token_id_logprobs", func(o *EngineCoreOutput) *any { return &o.PromptTokenIDLogprobs }),
	"error": {
		set: func(o *EngineCoreOutput) bool { return o.Error != nil },
		encode: func(e *encoder, o *EngineCoreOutput) {
			if o.Error == nil {
				e.null()
				return
			}
			e.mapLen(3)
			e.str("code")
			e.str(o.Error.Code)
			e.str("message")
			e.str(o.Error.Message)
			e.str("retryable")
			e.boolean(o.Error.Retryable)
		},
		decode: func(d *decoder, o *EngineCoreOutput) (err error) {
			if !d.null() {
				o.Error, err = d.requestError()
			}
			return err
		},
	},
}

// anyOutput is a field that is None or whatever the engine has to say.
func anyOutput(name string, at func(*EngineCoreOutput) *any) outputField {
	return outputField{
		set:    func(o *EngineCoreOutput) bool { return *at(o) != nil },
		encode: func(e *encoder, o *EngineCoreOutput) { e.anything("field "+name, *at(o)) },
		decode: func(d *decoder, o *EngineCoreOutput) (err error) {
			*at(o), err = d.anything(name, true)
			return err
		},
	}
}

func intOutput(name string, at func(*EngineCoreOutput) *int) outputField {
	return outputField{
		set:    func(o *EngineCoreOutput) bool { return *at(o) != 0 },
		encode: func(e *encoder, o *EngineCoreOutput) { e.int(*at(o)) },
		decode: func(d *decoder, o *EngineCoreOutput) (err error) {
			*at(o), err = d.anyInt(name)
			return err
		},
	}
}

func (e *encoder) stopReason(v any) {
	c, err := canonical(v)
	switch c.(type) {
	case nil, int64, string:
		if err == nil {
			e.value(c)
			return
		}
	}
	e.invalid("field stop_reason", "it is a %T, must be nil, an integer or a string", v)
}

func (d *decoder) stopReason() (any, error) {
	const what = "stop_reason"
	switch k := d.peek(); k {
	case kindNil:
		d.null()
		return nil, nil
	case kindInt, kindStr:
		return d.anything(what, false)
	default:
		return nil, d.corrupt(what, "a token, a string or nil", string(k))
	}
}

func (e *encoder) events(list []Event) {
	e.array(len(list))
	for _, v := range list {
		e.mapLen(2)
		e.str("type")
		e.int(int(v.Type))
		e.str("timestamp")
		e.float(v.Timestamp)
	}
}

func (d *decoder) events() ([]Event, error) {
	n, err := d.array("events")
	if err != nil {
		return nil, err
	}
	out := make([]Event, 0, small(n))
	for range n {
		var v Event
		err := d.object("event", []string{"type", "timestamp"}, func(name string) (bool, error) {
			var err error
			switch name {
			case "type":
				var n int
				n, err = d.anyInt(name)
				v.Type = EventType(n)
			case "timestamp":
				v.Timestamp, err = d.float(name)
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

func (d *decoder) requestError() (*RequestError, error) {
	r := &RequestError{}
	err := d.object("error", []string{"code", "message"}, func(name string) (bool, error) {
		var err error
		switch name {
		case "code":
			r.Code, err = d.text(name)
		case "message":
			r.Message, err = d.text(name)
		case "retryable":
			r.Retryable, err = d.boolean(name)
		default:
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}
