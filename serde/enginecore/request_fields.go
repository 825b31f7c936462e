package enginecore

import (
	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/internal/pyvalue"
	"github.com/ringcache/ringcache/serde"
)

// requestField is a field of a Request on the wire.
type requestField struct {
	name string
	codec.FieldWriter[*writer, Request]
}

// requestFields has every field of every release.
var requestFields = map[string]codec.FieldWriter[*writer, Request]{
	"request_id": {
		Set:   always,
		Write: func(w *writer, r *Request) { w.m.id = w.mark(func() { w.Text(r.RequestID) }) },
	},
	"prompt_token_ids": codec.List(func(r *Request) []uint32 { return r.PromptTokenIDs }, (*writer).Tokens),
	"mm_features":      codec.List(func(r *Request) []Feature { return r.Features }, (*writer).features),
	"sampling_params":  {Set: always, Write: func(w *writer, _ *Request) { w.params(false) }},
	"pooling_params":   {Set: always, Write: func(w *writer, _ *Request) { w.params(true) }},
	"eos_token_id": {
		// Every generation has a place for it.
		Set: func(*Request) bool { return false },
		Write: func(w *writer, r *Request) {
			codec.WriteOptional(w.Encoder, r.EOSTokenID, func(t uint32) { w.Int(int64(t)) })
		},
	},
	"arrival_time":        {Set: always, Write: func(w *writer, r *Request) { w.Float(r.ArrivalTime) }},
	"lora_request":        codec.Pointer(func(r *Request) *LoRA { return r.LoRA }, (*writer).lora),
	"cache_salt":          codec.Pointer(func(r *Request) *string { return r.CacheSalt }, (*writer).Text),
	"data_parallel_rank":  codec.Pointer(func(r *Request) *int { return r.DataParallelRank }, (*writer).int),
	"prompt_embeds":       codec.Plain(func(r *Request) *serde.Tensor { return r.PromptEmbeds }, (*writer).tensor),
	"prompt_is_token_ids": codec.List(func(r *Request) []bool { return r.PromptIsTokenIDs }, (*writer).bools),
	"client_index":        codec.Plain(func(r *Request) int { return r.ClientIndex }, (*writer).int),
	"current_wave":        codec.Plain(func(r *Request) int { return r.CurrentWave }, (*writer).int),
	"priority":            codec.Plain(func(r *Request) int { return r.Priority }, (*writer).int),
	"trace_headers": {
		Set:   func(r *Request) bool { return r.TraceHeaders != nil },
		Write: func(w *writer, r *Request) { w.TextMap(r.TraceHeaders) },
	},
	"resumable":         codec.Plain(func(r *Request) bool { return r.Resumable }, (*writer).Bool),
	"abort_immediately": codec.Plain(func(r *Request) bool { return r.AbortImmediately }, (*writer).Bool),
	"external_req_id":   codec.Pointer(func(r *Request) *string { return r.ExternalReqID }, (*writer).Text),
	"reasoning_ended":   codec.Pointer(func(r *Request) *bool { return r.ReasoningEnded }, (*writer).Bool),
	"reasoning_parser_kwargs": {
		Set: func(r *Request) bool { return r.ReasoningParserKwargs != nil },
		Write: func(w *writer, r *Request) {
			if r.ReasoningParserKwargs == nil {
				w.Nil()
				return
			}
			pyvalue.Write(w.Encoder, "reasoning_parser_kwargs", r.ReasoningParserKwargs)
		},
	},
	"session_id": codec.Pointer(func(r *Request) *string { return r.SessionID }, (*writer).Text),
	"kv_hints":   codec.Pointer(func(r *Request) *KVHints { return r.KVHints }, (*writer).kvHints),
}

func always(*Request) bool { return true }

func (w *writer) int(n int) { w.Int(int64(n)) }

func (w *writer) bools(list []bool) {
	w.Array(len(list))
	for _, b := range list {
		w.Bool(b)
	}
}
