package serde

import "fmt"

// requestField is a field of EngineCoreRequest on the wire.
type requestField struct {
	// required: Python has no default for it.
	required bool
	// set says whether the field has another value than Python's default.
	set    func(*EngineCoreRequest) bool
	encode func(*encoder, *EngineCoreRequest)
	decode func(*decoder, *EngineCoreRequest) error
}

var requestTable = map[string]requestField{
	"request_id": {
		required: true,
		set:      func(r *EngineCoreRequest) bool { return true },
		encode:   func(e *encoder, r *EngineCoreRequest) { e.str(r.RequestID) },
		decode: func(d *decoder, r *EngineCoreRequest) (err error) {
			r.RequestID, err = d.text("request_id")
			return err
		},
	},
	"prompt_token_ids": {
		required: true,
		set:      func(r *EngineCoreRequest) bool { return r.PromptTokenIDs != nil },
		encode: func(e *encoder, r *EngineCoreRequest) {
			if r.PromptTokenIDs == nil {
				e.null()
				return
			}
			e.tokens(r.PromptTokenIDs)
		},
		decode: func(d *decoder, r *EngineCoreRequest) (err error) {
			if !d.null() {
				r.PromptTokenIDs, err = d.uint32s("prompt_token_ids")
			}
			return err
		},
	},
	"mm_features": {
		required: true,
		set:      func(r *EngineCoreRequest) bool { return r.Features != nil },
		encode: func(e *encoder, r *EngineCoreRequest) {
			if r.Features == nil {
				e.null()
				return
			}
			e.features(r.Features)
		},
		decode: func(d *decoder, r *EngineCoreRequest) (err error) {
			if !d.null() {
				r.Features, err = d.features()
			}
			return err
		},
	},
	"sampling_params": {
		required: true,
		set:      func(r *EngineCoreRequest) bool { return r.SamplingParams != nil },
		encode:   (*encoder).sampling,
		decode: func(d *decoder, r *EngineCoreRequest) (err error) {
			if !d.null() {
				r.SamplingParams, err = d.sampling()
			}
			return err
		},
	},
	"pooling_params": {
		required: true,
		set:      func(r *EngineCoreRequest) bool { return r.PoolingParams != nil },
		encode:   (*encoder).pooling,
		decode: func(d *decoder, r *EngineCoreRequest) (err error) {
			if !d.null() {
				r.PoolingParams, err = d.pooling()
			}
			return err
		},
	},
	"eos_token_id": {
		required: true,
		// Every generation has a place for it.
		set:    func(r *EngineCoreRequest) bool { return false },
		encode: func(e *encoder, r *EngineCoreRequest) { encodeOptional(e, r.EOSTokenID, (*encoder).token) },
		decode: func(d *decoder, r *EngineCoreRequest) (err error) {
			r.EOSTokenID, err = optionalValue(d, "eos_token_id", d.uint32)
			return err
		},
	},
	"arrival_time": {
		required: true,
		set:      func(r *EngineCoreRequest) bool { return true },
		encode:   func(e *encoder, r *EngineCoreRequest) { e.float(r.ArrivalTime) },
		decode: func(d *decoder, r *EngineCoreRequest) (err error) {
			r.ArrivalTime, err = d.float("arrival_time")
			return err
		},
	},
	"lora_request": {
		required: true,
		set:      func(r *EngineCoreRequest) bool { return r.LoRA != nil },
		encode: func(e *encoder, r *EngineCoreRequest) {
			if r.LoRA == nil {
				e.null()
				return
			}
			e.lora(r.LoRA)
		},
		decode: func(d *decoder, r *EngineCoreRequest) (err error) {
			if !d.null() {
				r.LoRA, err = d.lora()
			}
			return err
		},
	},
	"cache_salt": {
		required: true,
		set:      func(r *EngineCoreRequest) bool { return r.CacheSalt != nil },
		encode:   func(e *encoder, r *EngineCoreRequest) { encodeOptional(e, r.CacheSalt, (*encoder).str) },
		decode: func(d *decoder, r *EngineCoreRequest) (err error) {
			r.CacheSalt, err = optionalValue(d, "cache_salt", d.text)
			return err
		},
	},
	"data_parallel_rank": {
		required: true,
		set:      func(r *EngineCoreRequest) bool { return r.DataParallelRank != nil },
		encode:   func(e *encoder, r *EngineCoreRequest) { encodeOptional(e, r.DataParallelRank, (*encoder).int) },
		decode: func(d *decoder, r *EngineCoreRequest) (err error) {
			r.DataParallelRank, err = optionalValue(d, "data_parallel_rank", d.anyInt)
			return err
		},
	},
	"prompt_embeds": {
		set: func(r *EngineCoreRequest) bool { return r.PromptEmbeds != nil },
		encode: func(e *encoder, r *EngineCoreRequest) {
			if r.PromptEmbeds == nil {
				e.null()
				return
			}
			e.tensor(r.PromptEmbeds)
		},
		decode: func(d *decoder, r *EngineCoreRequest) (err error) {
			if !d.null() {
				r.PromptEmbeds, err = d.tensor()
			}
			return err
		},
	},
	"prompt_is_token_ids": {
		set: func(r *EngineCoreRequest) bool { return r.PromptIsTokenIDs != nil },
		encode: func(e *encoder, r *EngineCoreRequest) {
			if r.PromptIsTokenIDs == nil {
				e.null()
				return
			}
			e.array(len(r.PromptIsTokenIDs))
			for _, b := range r.PromptIsTokenIDs {
				e.boolean(b)
			}
		},
		decode: func(d *decoder, r *EngineCoreRequest) (err error) {
			if !d.null() {
				r.PromptIsTokenIDs, err = d.bools("prompt_is_token_ids")
			}
			return err
		},
	},
	"client_index": intField("client_index", func(r *EngineCoreRequest) *int { return &r.ClientIndex }),
	"current_wave": intField("current_wave", func(r *EngineCoreRequest) *int { return &r.CurrentWave }),
	"priority":     intField("priority", func(r *EngineCoreRequest) *int { return &r.Priority }),
	"trace_headers": {
		set:    func(r *EngineCoreRequest) bool { return r.TraceHeaders != nil },
		encode: func(e *encoder, r *EngineCoreRequest) { e.textMap(r.TraceHeaders) },
		decode: func(d *decoder, r *EngineCoreRequest) (err error) {
			if !d.null() {
				r.TraceHeaders, err = d.textMap("trace_headers")
			}
			return err
		},
	},
	"resumable":         boolField("resumable", func(r *EngineCoreRequest) *bool { return &r.Resumable }),
	"abort_immediately": boolField("abort_immediately", func(r *EngineCoreRequest) *bool { return &r.AbortImmediately }),
	"external_req_id": {
		set:    func(r *EngineCoreRequest) bool { return r.ExternalReqID != nil },
		encode: func(e *encoder, r *EngineCoreRequest) { encodeOptional(e, r.ExternalReqID, (*encoder).str) },
		decode: func(d *decoder, r *EngineCoreRequest) (err error) {
			r.ExternalReqID, err = optionalValue(d, "external_req_id", d.text)
			return err
		},
	},
	"reasoning_ended": {
		set:    func(r *EngineCoreRequest) bool { return r.ReasoningEnded != nil },
		encode: func(e *encoder, r *EngineCoreRequest) { encodeOptional(e, r.ReasoningEnded, (*encoder).boolean) },
		decode: func(d *decoder, r *EngineCoreRequest) (err error) {
			r.ReasoningEnded, err = optionalValue(d, "reasoning_ended", d.boolean)
			return err
		},
	},
	"reasoning_parser_kwargs": {
		set: func(r *EngineCoreRequest) bool { return r.ReasoningParserKwargs != nil },
		encode: func(e *encoder, r *EngineCoreRequest) {
			if r.ReasoningParserKwargs == nil {
				e.null()
				return
			}
			e.anything("reasoning_parser_kwargs", r.ReasoningParserKwargs)
		},
		decode: func(d *decoder, r *EngineCoreRequest) (err error) {
			if !d.null() {
				r.ReasoningParserKwargs, err = d.anyMapOf("reasoning_parser_kwargs")
			}
			return err
		},
	},
	"session_id": {
		set:    func(r *EngineCoreRequest) bool { return r.SessionID != nil },
		encode: func(e *encoder, r *EngineCoreRequest) { encodeOptional(e, r.SessionID, (*encoder).str) },
		decode: func(d *decoder, r *EngineCoreRequest) (err error) {
			r.SessionID, err = optionalValue(d, "session_id", d.text)
			return err
		},
	},
	"kv_hints": {
		set: func(r *EngineCoreRequest) bool { return r.KVHints != nil },
		encode: func(e *encoder, r *EngineCoreRequest) {
			if r.KVHints == nil {
				e.null()
				return
			}
			e.kvHints(r.KVHints)
		},
		decode: func(d *decoder, r *EngineCoreRequest) (err error) {
			if !d.null() {
				r.KVHints, err = d.kvHints()
			}
			return err
		},
	},
}

func intField(name string, at func(*EngineCoreRequest) *int) requestField {
	return requestField{
		set:    func(r *EngineCoreRequest) bool { return *at(r) != 0 },
		encode: func(e *encoder, r *EngineCoreRequest) { e.int(*at(r)) },
		decode: func(d *decoder, r *EngineCoreRequest) (err error) {
			*at(r), err = d.anyInt(name)
			return err
		},
	}
}

func boolField(name string, at func(*EngineCoreRequest) *bool) requestField {
	return requestField{
		set:    func(r *EngineCoreRequest) bool { return *at(r) },
		encode: func(e *encoder, r *EngineCoreRequest) { e.boolean(*at(r)) },
		decode: func(d *decoder, r *EngineCoreRequest) (err error) {
			*at(r), err = d.boolean(name)
			return err
		},
	}
}

func encodeOptional[T any](e *encoder, v *T, write func(*encoder, T)) {
	if v == nil {
		e.null()
		return
	}
	write(e, *v)
}

func (e *encoder) int(n int)       { e.integer(int64(n)) }
func (e *encoder) token(t uint32)  { e.integer(int64(t)) }
func (e *encoder) float(f float64) { e.keep(e.mp.EncodeFloat64(f)) }

func (e *encoder) tokens(ids []uint32) {
	e.array(len(ids))
	for _, t := range ids {
		e.integer(int64(t))
	}
}

func (e *encoder) texts(list []string) {
	e.array(len(list))
	for _, s := range list {
		e.str(s)
	}
}

func (e *encoder) textMap(m map[string]string) {
	if m == nil {
		e.null()
		return
	}
	e.mapLen(len(m))
	for _, k := range sortedKeys(m) {
		e.str(k)
		e.str(m[k])
	}
}

// anyInt reads an int of any sign.
func (d *decoder) anyInt(what string) (int, error) {
	n, err := d.int64(what)
	if err != nil {
		return 0, err
	}
	if int64(int(n)) != n {
		return 0, d.corrupt(what, "an int", fmt.Sprint(n))
	}
	return int(n), nil
}
