package wire

import (
	"maps"
	"slices"

	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/internal/pyvalue"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// writer writes what an engine answers.
type writer struct {
	*codec.Encoder
	c *Codec
}

// fieldWriter writes a field of an Output or of Outputs.
type fieldWriter[T any] struct {
	// set reports whether the field has another value than Python's default.
	set   func(*T) bool
	write func(*writer, *T)
}

// EncodeOutputs returns the frames of a message on the output socket. A field that is
// set and that the generation does not have is an error. The error wraps
// [fs.ErrInvalid].
func (c *Codec) EncodeOutputs(m *enginecore.Outputs) ([][]byte, error) {
	if m == nil {
		return nil, codec.Invalid("outputs", "it is a nil *Outputs")
	}
	w := &writer{codec.NewEncoder(c.threshold), c}
	writeFields(w, outputsFields, c.gen.OutputsFields, m)
	return w.Frames()
}

// writeFields writes an array without names.
func writeFields[T any](w *writer, all map[string]fieldWriter[T], names []string, v *T) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name].set(v) && !slices.Contains(names, name) {
			w.Invalid("field "+name, "vLLM %s has none; leave it unset", w.c.gen.Version)
			return
		}
	}
	w.Array(len(names))
	for _, name := range names {
		all[name].write(w, v)
		if w.Err() != nil {
			return
		}
	}
}

func (w *writer) int(n int)          { w.Int(int64(n)) }
func (w *writer) optionalInt(n *int) { codec.WriteOptional(w.Encoder, n, w.int) }

// texts writes None for nil.
func (w *writer) texts(list []string) {
	if list == nil {
		w.Nil()
		return
	}
	w.Texts(list)
}

// outputsFields has the fields of Outputs.
var outputsFields = map[string]fieldWriter[enginecore.Outputs]{
	"engine_index": {
		set:   func(m *enginecore.Outputs) bool { return m.EngineIndex != 0 },
		write: func(w *writer, m *enginecore.Outputs) { w.int(m.EngineIndex) },
	},
	"outputs": {
		set: func(m *enginecore.Outputs) bool { return m.Outputs != nil },
		write: func(w *writer, m *enginecore.Outputs) {
			w.Array(len(m.Outputs))
			for i := range m.Outputs {
				writeFields(w, outputFields, w.c.gen.OutputFields, &m.Outputs[i])
			}
		},
	},
	"scheduler_stats": {
		set: func(m *enginecore.Outputs) bool { return m.SchedulerStats != nil },
		write: func(w *writer, m *enginecore.Outputs) {
			pyvalue.Write(w.Encoder, "field scheduler_stats", m.SchedulerStats)
		},
	},
	"timestamp": {
		set:   func(m *enginecore.Outputs) bool { return m.Timestamp != 0 },
		write: func(w *writer, m *enginecore.Outputs) { w.Float(m.Timestamp) },
	},
	"utility_output": {
		set:   func(m *enginecore.Outputs) bool { return m.Answer != nil },
		write: func(w *writer, m *enginecore.Outputs) { w.answer(m.Answer) },
	},
	"finished_requests": {
		set:   func(m *enginecore.Outputs) bool { return m.FinishedRequests != nil },
		write: func(w *writer, m *enginecore.Outputs) { w.texts(m.FinishedRequests) },
	},
	"wave_complete": {
		set:   func(m *enginecore.Outputs) bool { return m.WaveComplete != nil },
		write: func(w *writer, m *enginecore.Outputs) { w.optionalInt(m.WaveComplete) },
	},
	"start_wave": {
		set:   func(m *enginecore.Outputs) bool { return m.StartWave != nil },
		write: func(w *writer, m *enginecore.Outputs) { w.optionalInt(m.StartWave) },
	},
	"weight_version": {
		set:   func(m *enginecore.Outputs) bool { return m.WeightVersion != nil },
		write: func(w *writer, m *enginecore.Outputs) { codec.WriteOptional(w.Encoder, m.WeightVersion, w.Text) },
	},
}

func (w *writer) answer(a *enginecore.Answer) {
	if a == nil {
		w.Nil()
		return
	}
	w.Array(3)
	w.Uint(a.CallID)
	codec.WriteOptional(w.Encoder, a.Failure, w.Text)
	if a.Failure != nil {
		w.Nil()
		return
	}
	w.Array(2)
	pyvalue.Write(w.Encoder, "field result", a.ResultType)
	pyvalue.Write(w.Encoder, "field result", a.Result)
}

// outputFields has the fields of an Output.
var outputFields = map[string]fieldWriter[enginecore.Output]{
	"request_id":    {set: always, write: func(w *writer, o *enginecore.Output) { w.Text(o.RequestID) }},
	"new_token_ids": {set: always, write: func(w *writer, o *enginecore.Output) { w.Tokens(o.NewTokenIDs) }},
	"pooling_output": {
		set: func(o *enginecore.Output) bool { return o.PoolingOutput != nil },
		write: func(w *writer, o *enginecore.Output) {
			if o.PoolingOutput == nil {
				w.Nil()
				return
			}
			pyvalue.WriteTensor(w.Encoder, o.PoolingOutput)
		},
	},
	"finish_reason": {
		set: func(o *enginecore.Output) bool { return o.FinishReason != nil },
		write: func(w *writer, o *enginecore.Output) {
			codec.WriteOptional(w.Encoder, o.FinishReason, func(r enginecore.FinishReason) { w.int(int(r)) })
		},
	},
	"stop_reason": {
		set:   func(o *enginecore.Output) bool { return o.StopReason != nil },
		write: func(w *writer, o *enginecore.Output) { w.stopReason(o.StopReason) },
	},
	"events": {
		set:   func(o *enginecore.Output) bool { return o.Events != nil },
		write: func(w *writer, o *enginecore.Output) { w.events(o.Events) },
	},
	"trace_headers": {
		set:   func(o *enginecore.Output) bool { return o.TraceHeaders != nil },
		write: func(w *writer, o *enginecore.Output) { w.TextMap(o.TraceHeaders) },
	},
	"mm_cache_miss_hashes": {
		set:   func(o *enginecore.Output) bool { return o.MMCacheMissHashes != nil },
		write: func(w *writer, o *enginecore.Output) { w.texts(o.MMCacheMissHashes) },
	},
	"error": {
		set: func(o *enginecore.Output) bool { return o.Error != nil },
		write: func(w *writer, o *enginecore.Output) {
			codec.WriteOptional(w.Encoder, o.Error, func(e enginecore.RequestError) {
				w.Map(3)
				w.Text("code")
				w.Text(e.Code)
				w.Text("message")
				w.Text(e.Message)
				w.Text("retryable")
				w.Bool(e.Retryable)
			})
		},
	},
	"routed_experts": {
		set: func(o *enginecore.Output) bool { return o.RoutedExperts != nil },
		write: func(w *writer, o *enginecore.Output) {
			pyvalue.Write(w.Encoder, "field routed_experts", o.RoutedExperts)
		},
	},
	"new_logprobs":                 anyField("new_logprobs", func(o *enginecore.Output) any { return o.Logprobs }),
	"new_prompt_logprobs_tensors":  anyField("new_prompt_logprobs_tensors", func(o *enginecore.Output) any { return o.PromptLogprobs }),
	"kv_transfer_params":           anyField("kv_transfer_params", func(o *enginecore.Output) any { return o.KVTransferParams }),
	"ec_transfer_params":           anyField("ec_transfer_params", func(o *enginecore.Output) any { return o.ECTransferParams }),
	"prefill_stats":                anyField("prefill_stats", func(o *enginecore.Output) any { return o.PrefillStats }),
	"new_sampling_mask":            anyField("new_sampling_mask", func(o *enginecore.Output) any { return o.SamplingMask }),
	"spec_decode_metrics":          anyField("spec_decode_metrics", func(o *enginecore.Output) any { return o.SpecDecodeMetrics }),
	"prompt_token_id_logprobs":     anyField("prompt_token_id_logprobs", func(o *enginecore.Output) any { return o.PromptTokenIDLogprobs }),
	"num_cached_tokens":            intField(func(o *enginecore.Output) int { return o.NumCachedTokens }),
	"num_external_computed_tokens": intField(func(o *enginecore.Output) int { return o.NumExternalComputedTokens }),
	"num_nans_in_logits":           intField(func(o *enginecore.Output) int { return o.NumNaNsInLogits }),
}

func always(*enginecore.Output) bool { return true }

func anyField(name string, of func(*enginecore.Output) any) fieldWriter[enginecore.Output] {
	return fieldWriter[enginecore.Output]{
		set:   func(o *enginecore.Output) bool { return of(o) != nil },
		write: func(w *writer, o *enginecore.Output) { pyvalue.Write(w.Encoder, "field "+name, of(o)) },
	}
}

func intField(of func(*enginecore.Output) int) fieldWriter[enginecore.Output] {
	return fieldWriter[enginecore.Output]{
		set:   func(o *enginecore.Output) bool { return of(o) != 0 },
		write: func(w *writer, o *enginecore.Output) { w.int(of(o)) },
	}
}

func (w *writer) stopReason(v any) {
	switch v.(type) {
	case nil, int64, string:
		pyvalue.Write(w.Encoder, "field stop_reason", v)
	default:
		w.Invalid("field stop_reason", "it is a %T, must be nil, an int64 or a string", v)
	}
}

func (w *writer) events(list []enginecore.Event) {
	if list == nil {
		w.Nil()
		return
	}
	w.Array(len(list))
	for _, v := range list {
		w.Map(2)
		w.Text("type")
		w.int(int(v.Type))
		w.Text("timestamp")
		w.Float(v.Timestamp)
	}
}
