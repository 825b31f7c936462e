package enginecore

import (
	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/internal/pyvalue"
)

// requestField is a field of a Request on the wire.
type requestField struct {
	name string
	// set reports whether the field has another value than Python's default.
	set   func(*Request) bool
	write func(*writer, *Request)
}

// requestFields has every field of every release.
var requestFields = named(map[string]requestField{
	"request_id": {
		set:   always,
		write: func(w *writer, r *Request) { w.m.id = w.mark(func() { w.Text(r.RequestID) }) },
	},
	"prompt_token_ids": {
		set: func(r *Request) bool { return r.PromptTokenIDs != nil },
		write: func(w *writer, r *Request) {
			if r.PromptTokenIDs == nil {
				w.Nil()
				return
			}
			w.Tokens(r.PromptTokenIDs)
		},
	},
	"mm_features": {
		set: func(r *Request) bool { return r.Features != nil },
		write: func(w *writer, r *Request) {
			if r.Features == nil {
				w.Nil()
				return
			}
			w.features(r.Features)
		},
	},
	"sampling_params": {set: always, write: func(w *writer, _ *Request) { w.params(false) }},
	"pooling_params":  {set: always, write: func(w *writer, _ *Request) { w.params(true) }},
	"eos_token_id": {
		// Every generation has a place for it.
		set: func(*Request) bool { return false },
		write: func(w *writer, r *Request) {
			codec.WriteOptional(w.Encoder, r.EOSTokenID, func(t uint32) { w.Int(int64(t)) })
		},
	},
	"arrival_time": {set: always, write: func(w *writer, r *Request) { w.Float(r.ArrivalTime) }},
	"lora_request": {
		set: func(r *Request) bool { return r.LoRA != nil },
		write: func(w *writer, r *Request) {
			codec.WriteOptional(w.Encoder, r.LoRA, func(l LoRA) { w.lora(&l) })
		},
	},
	"cache_salt": textField(func(r *Request) *string { return r.CacheSalt }),
	"data_parallel_rank": {
		set: func(r *Request) bool { return r.DataParallelRank != nil },
		write: func(w *writer, r *Request) {
			codec.WriteOptional(w.Encoder, r.DataParallelRank, func(n int) { w.Int(int64(n)) })
		},
	},
	"prompt_embeds": {
		set:   func(r *Request) bool { return r.PromptEmbeds != nil },
		write: func(w *writer, r *Request) { w.tensor(r.PromptEmbeds) },
	},
	"prompt_is_token_ids": {
		set: func(r *Request) bool { return r.PromptIsTokenIDs != nil },
		write: func(w *writer, r *Request) {
			if r.PromptIsTokenIDs == nil {
				w.Nil()
				return
			}
			w.Array(len(r.PromptIsTokenIDs))
			for _, b := range r.PromptIsTokenIDs {
				w.Bool(b)
			}
		},
	},
	"client_index": intField(func(r *Request) int { return r.ClientIndex }),
	"current_wave": intField(func(r *Request) int { return r.CurrentWave }),
	"priority":     intField(func(r *Request) int { return r.Priority }),
	"trace_headers": {
		set:   func(r *Request) bool { return r.TraceHeaders != nil },
		write: func(w *writer, r *Request) { w.TextMap(r.TraceHeaders) },
	},
	"resumable":         boolField(func(r *Request) bool { return r.Resumable }),
	"abort_immediately": boolField(func(r *Request) bool { return r.AbortImmediately }),
	"external_req_id":   textField(func(r *Request) *string { return r.ExternalReqID }),
	"reasoning_ended": {
		set:   func(r *Request) bool { return r.ReasoningEnded != nil },
		write: func(w *writer, r *Request) { codec.WriteOptional(w.Encoder, r.ReasoningEnded, w.Bool) },
	},
	"reasoning_parser_kwargs": {
		set: func(r *Request) bool { return r.ReasoningParserKwargs != nil },
		write: func(w *writer, r *Request) {
			if r.ReasoningParserKwargs == nil {
				w.Nil()
				return
			}
			pyvalue.Write(w.Encoder, "reasoning_parser_kwargs", r.ReasoningParserKwargs)
		},
	},
	"session_id": textField(func(r *Request) *string { return r.SessionID }),
	"kv_hints": {
		set: func(r *Request) bool { return r.KVHints != nil },
		write: func(w *writer, r *Request) {
			codec.WriteOptional(w.Encoder, r.KVHints, func(h KVHints) { w.kvHints(&h) })
		},
	},
})

// named gives each field its own name.
func named(fields map[string]requestField) map[string]requestField {
	for name, f := range fields {
		f.name = name
		fields[name] = f
	}
	return fields
}

func always(*Request) bool { return true }

func textField(of func(*Request) *string) requestField {
	return requestField{
		set:   func(r *Request) bool { return of(r) != nil },
		write: func(w *writer, r *Request) { w.text(of(r)) },
	}
}

func intField(of func(*Request) int) requestField {
	return requestField{
		set:   func(r *Request) bool { return of(r) != 0 },
		write: func(w *writer, r *Request) { w.Int(int64(of(r))) },
	}
}

func boolField(of func(*Request) bool) requestField {
	return requestField{set: of, write: func(w *writer, r *Request) { w.Bool(of(r)) }}
}
