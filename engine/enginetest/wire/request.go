package wire

import (
	"fmt"

	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/internal/pyvalue"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// Request is a request as it arrived. Params of the embedded one is nil: an engine takes
// whatever parameters it is sent.
type Request struct {
	enginecore.Request
	// SamplingParams and PoolingParams are nil for None. Values are those of
	// enginecore.Codec.DecodeOutputs.
	SamplingParams, PoolingParams map[string]any
}

// reader reads a request.
type reader struct {
	*codec.Decoder
	c *Codec
}

// readRequest accepts longer arrays, as Python does, and
// shorter ones where the rest has defaults. From 0.17.0 on EOSTokenID is what
// the sampling parameters have as _eos_token_id, which then is not among them.
func (c *Codec) readRequest(d *codec.Decoder) (*Request, error) {
	r := &reader{d, c}
	n, err := r.Array("request")
	if err != nil {
		return nil, err
	}
	r.AnyFrames = true
	q := &Request{}
	names := c.gen.RequestFields
	for i := range max(n, len(names)) {
		switch {
		case i >= len(names):
			err = r.Skip("request")
		case i < n:
			err = fieldReaders[names[i]].read(r, q)
		case fieldReaders[names[i]].required:
			err = r.Corrupt("request", "the field "+names[i], fmt.Sprintf("an array of %d", n))
		}
		if err != nil {
			return nil, err
		}
	}
	if eos, isInt := q.SamplingParams["_eos_token_id"].(int64); isInt && eos == int64(uint32(eos)) && q.EOSTokenID == nil {
		token := uint32(eos)
		q.EOSTokenID = &token
		delete(q.SamplingParams, "_eos_token_id")
	}
	return q, nil
}

// requestField reads a field of a request.
type requestField struct {
	required bool // Python has no default for it
	read     func(*reader, *Request) error
}

// fieldReaders has every field of every release.
var fieldReaders = map[string]requestField{
	"request_id": {true, func(r *reader, q *Request) (err error) {
		q.RequestID, err = r.Text("request_id")
		return err
	}},
	"prompt_token_ids": {true, func(r *reader, q *Request) (err error) {
		if !r.Nil() {
			q.PromptTokenIDs, err = r.Tokens("prompt_token_ids")
		}
		return err
	}},
	"mm_features": {true, func(r *reader, q *Request) (err error) {
		if !r.Nil() {
			q.Features, err = r.features()
		}
		return err
	}},
	"sampling_params": {true, func(r *reader, q *Request) (err error) {
		if !r.Nil() {
			q.SamplingParams, err = r.sampling()
		}
		return err
	}},
	"pooling_params": {true, func(r *reader, q *Request) (err error) {
		if !r.Nil() {
			q.PoolingParams, err = r.pooling()
		}
		return err
	}},
	"eos_token_id": optional(true, "eos_token_id", (*reader).Uint32, func(q *Request) **uint32 { return &q.EOSTokenID }),
	"arrival_time": {true, func(r *reader, q *Request) (err error) {
		q.ArrivalTime, err = r.Float("arrival_time")
		return err
	}},
	"lora_request": {true, func(r *reader, q *Request) (err error) {
		if !r.Nil() {
			q.LoRA, err = r.lora()
		}
		return err
	}},
	"cache_salt":         optional(true, "cache_salt", (*reader).Text, func(q *Request) **string { return &q.CacheSalt }),
	"data_parallel_rank": optional(true, "data_parallel_rank", (*reader).Int, func(q *Request) **int { return &q.DataParallelRank }),
	"prompt_embeds": {read: func(r *reader, q *Request) (err error) {
		if !r.Nil() {
			q.PromptEmbeds, err = pyvalue.ReadTensor(r.Decoder)
		}
		return err
	}},
	"prompt_is_token_ids": {read: func(r *reader, q *Request) (err error) {
		if !r.Nil() {
			q.PromptIsTokenIDs, err = r.Bools("prompt_is_token_ids")
		}
		return err
	}},
	"client_index":      value("client_index", (*reader).Int, func(q *Request) *int { return &q.ClientIndex }),
	"current_wave":      value("current_wave", (*reader).Int, func(q *Request) *int { return &q.CurrentWave }),
	"priority":          value("priority", (*reader).Int, func(q *Request) *int { return &q.Priority }),
	"resumable":         value("resumable", (*reader).Bool, func(q *Request) *bool { return &q.Resumable }),
	"abort_immediately": value("abort_immediately", (*reader).Bool, func(q *Request) *bool { return &q.AbortImmediately }),
	"trace_headers": {read: func(r *reader, q *Request) (err error) {
		if !r.Nil() {
			q.TraceHeaders, err = r.TextMap("trace_headers")
		}
		return err
	}},
	"external_req_id": optional(false, "external_req_id", (*reader).Text, func(q *Request) **string { return &q.ExternalReqID }),
	"reasoning_ended": optional(false, "reasoning_ended", (*reader).Bool, func(q *Request) **bool { return &q.ReasoningEnded }),
	"reasoning_parser_kwargs": {read: func(r *reader, q *Request) (err error) {
		if !r.Nil() {
			q.ReasoningParserKwargs, err = pyvalue.ReadMap(r.Decoder, "reasoning_parser_kwargs")
		}
		return err
	}},
	"session_id": optional(false, "session_id", (*reader).Text, func(q *Request) **string { return &q.SessionID }),
	"kv_hints": {read: func(r *reader, q *Request) (err error) {
		if !r.Nil() {
			q.KVHints, err = r.kvHints()
		}
		return err
	}},
}

// value is a field that is never None.
func value[V any](name string, read func(*reader, string) (V, error), at func(*Request) *V) requestField {
	return requestField{read: func(r *reader, q *Request) (err error) {
		*at(q), err = read(r, name)
		return err
	}}
}

// optional is a field that is None or one value.
func optional[V any](required bool, name string, read func(*reader, string) (V, error), at func(*Request) **V) requestField {
	return requestField{required, func(r *reader, q *Request) (err error) {
		*at(q), err = codec.ReadOptional(r.Decoder, name, func(what string) (V, error) { return read(r, what) })
		return err
	}}
}

func (r *reader) sampling() (map[string]any, error) {
	const what = "sampling_params"
	n, err := r.Map(what)
	if err != nil {
		return nil, err
	}
	p := make(map[string]any, codec.Small(n))
	for range n {
		name, err := r.Text(what)
		if err != nil {
			return nil, err
		}
		if err := r.Charge(what, codec.CostEntry); err != nil {
			return nil, err
		}
		if p[name], err = pyvalue.Read(r.Decoder, "parameter "+name, name == "prompt_logprob_token_ids"); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// pooling leaves out what is None.
func (r *reader) pooling() (map[string]any, error) {
	const what = "pooling_params"
	n, err := r.Array(what)
	if err != nil {
		return nil, err
	}
	p := map[string]any{}
	names := r.c.gen.Params.Pooling
	for i := range n {
		if i >= len(names) {
			if err := r.Skip(what); err != nil {
				return nil, err
			}
			continue
		}
		v, err := pyvalue.Read(r.Decoder, "parameter "+names[i], false)
		if err != nil {
			return nil, err
		}
		if v != nil {
			p[names[i]] = v
		}
	}
	return p, nil
}
