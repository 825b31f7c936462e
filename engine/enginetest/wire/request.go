package wire

import (
	"fmt"

	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/internal/pyvalue"
	"github.com/ringcache/ringcache/serde"
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
			err = fieldReaders[names[i]].read(r, q, names[i])
		case fieldReaders[names[i]].required:
			err = r.Corrupt("request", "the field "+names[i], fmt.Sprintf("an array of %d", n))
		}
		if err != nil {
			return nil, err
		}
	}
	if eos, isInt := q.SamplingParams["_eos_token_id"].(int64); isInt && eos == int64(uint32(eos)) &&
		q.EOSTokenID == nil {
		token := uint32(eos)
		q.EOSTokenID = &token
		delete(q.SamplingParams, "_eos_token_id")
	}
	return q, nil
}

// requestField reads a field of a request.
type requestField struct {
	required bool // Python has no default for it
	read     func(*reader, *Request, string) error
}

// fieldReaders has every field of every release.
var fieldReaders = map[string]requestField{
	"request_id":       {true, codec.Value(func(q *Request) *string { return &q.RequestID }, (*reader).Text)},
	"prompt_token_ids": {true, codec.OrNone(func(q *Request) *[]uint32 { return &q.PromptTokenIDs }, (*reader).Tokens)},
	"mm_features":      {true, codec.OrNone(func(q *Request) *[]enginecore.Feature { return &q.Features }, readFeatures)},
	"sampling_params":  {true, codec.OrNone(func(q *Request) *map[string]any { return &q.SamplingParams }, (*reader).sampling)},
	"pooling_params":   {true, codec.OrNone(func(q *Request) *map[string]any { return &q.PoolingParams }, (*reader).pooling)},
	"eos_token_id":     {true, codec.Optional(func(q *Request) **uint32 { return &q.EOSTokenID }, (*reader).Uint32)},
	"arrival_time":     {true, codec.Value(func(q *Request) *float64 { return &q.ArrivalTime }, (*reader).Float)},
	"lora_request":     {true, codec.OrNone(func(q *Request) **enginecore.LoRA { return &q.LoRA }, (*reader).lora)},
	"cache_salt":       {true, codec.Optional(func(q *Request) **string { return &q.CacheSalt }, (*reader).Text)},
	"data_parallel_rank": {true, codec.Optional(
		func(q *Request) **int { return &q.DataParallelRank }, (*reader).Int)},
	"prompt_embeds":       {read: codec.OrNone(func(q *Request) **serde.Tensor { return &q.PromptEmbeds }, (*reader).tensor)},
	"prompt_is_token_ids": {read: codec.OrNone(func(q *Request) *[]bool { return &q.PromptIsTokenIDs }, (*reader).Bools)},
	"client_index":        {read: codec.Value(func(q *Request) *int { return &q.ClientIndex }, (*reader).Int)},
	"current_wave":        {read: codec.Value(func(q *Request) *int { return &q.CurrentWave }, (*reader).Int)},
	"priority":            {read: codec.Value(func(q *Request) *int { return &q.Priority }, (*reader).Int)},
	"resumable":           {read: codec.Value(func(q *Request) *bool { return &q.Resumable }, (*reader).Bool)},
	"abort_immediately":   {read: codec.Value(func(q *Request) *bool { return &q.AbortImmediately }, (*reader).Bool)},
	"trace_headers": {read: codec.OrNone(
		func(q *Request) *map[string]string { return &q.TraceHeaders }, (*reader).TextMap)},
	"external_req_id": {read: codec.Optional(func(q *Request) **string { return &q.ExternalReqID }, (*reader).Text)},
	"reasoning_ended": {read: codec.Optional(func(q *Request) **bool { return &q.ReasoningEnded }, (*reader).Bool)},
	"reasoning_parser_kwargs": {read: codec.OrNone(
		func(q *Request) *map[string]any { return &q.ReasoningParserKwargs }, (*reader).plainMap)},
	"session_id": {read: codec.Optional(func(q *Request) **string { return &q.SessionID }, (*reader).Text)},
	"kv_hints":   {read: codec.Optional(func(q *Request) **enginecore.KVHints { return &q.KVHints }, readHints)},
}

func (r *reader) tensor(string) (*serde.Tensor, error) { return pyvalue.ReadTensor(r.Decoder) }

func (r *reader) plainMap(what string) (map[string]any, error) {
	return pyvalue.ReadMap(r.Decoder, what)
}

func (r *reader) sampling(what string) (map[string]any, error) {
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
func (r *reader) pooling(what string) (map[string]any, error) {
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
