package wire

import (
	"maps"
	"slices"

	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/internal/pyvalue"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// writer writes what an engine answers.
type writer struct {
	*codec.Encoder
	c *Codec
}

type (
	outputsWriter = codec.FieldWriter[*writer, enginecore.Outputs]
	outputWriter  = codec.FieldWriter[*writer, enginecore.Output]
)

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
func writeFields[T any](w *writer, all map[string]codec.FieldWriter[*writer, T], names []string, v *T) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name].Set(v) && !slices.Contains(names, name) {
			w.Invalid("field "+name, "vLLM %s has none; leave it unset", w.c.gen.Version)
			return
		}
	}
	w.Array(len(names))
	for _, name := range names {
		all[name].Write(w, v)
		if w.Err() != nil {
			return
		}
	}
}

func (w *writer) int(n int) { w.Int(int64(n)) }

// outputsFields has the fields of Outputs.
var outputsFields = map[string]outputsWriter{
	"engine_index": codec.Plain(func(m *enginecore.Outputs) int { return m.EngineIndex }, (*writer).int),
	"outputs": {
		Set: func(m *enginecore.Outputs) bool { return m.Outputs != nil },
		Write: func(w *writer, m *enginecore.Outputs) {
			w.Array(len(m.Outputs))
			for i := range m.Outputs {
				writeFields(w, outputFields, w.c.gen.OutputFields, &m.Outputs[i])
			}
		},
	},
	"scheduler_stats":   anyField("scheduler_stats", func(m *enginecore.Outputs) any { return m.SchedulerStats }),
	"timestamp":         codec.Plain(func(m *enginecore.Outputs) float64 { return m.Timestamp }, (*writer).Float),
	"utility_output":    codec.Pointer(func(m *enginecore.Outputs) *enginecore.Answer { return m.Answer }, (*writer).answer),
	"finished_requests": codec.List(func(m *enginecore.Outputs) []string { return m.FinishedRequests }, (*writer).Texts),
	"wave_complete":     codec.Pointer(func(m *enginecore.Outputs) *int { return m.WaveComplete }, (*writer).int),
	"start_wave":        codec.Pointer(func(m *enginecore.Outputs) *int { return m.StartWave }, (*writer).int),
	"weight_version":    codec.Pointer(func(m *enginecore.Outputs) *string { return m.WeightVersion }, (*writer).Text),
}

func (w *writer) answer(a enginecore.Answer) {
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
var outputFields = map[string]outputWriter{
	"request_id":     codec.Plain(func(o *enginecore.Output) string { return o.RequestID }, (*writer).Text),
	"new_token_ids":  {Set: always, Write: func(w *writer, o *enginecore.Output) { w.Tokens(o.NewTokenIDs) }},
	"pooling_output": codec.Plain(func(o *enginecore.Output) *serde.Tensor { return o.PoolingOutput }, (*writer).tensor),
	"finish_reason":  codec.Pointer(func(o *enginecore.Output) *enginecore.FinishReason { return o.FinishReason }, (*writer).finishReason),
	"stop_reason":    codec.Plain(func(o *enginecore.Output) any { return o.StopReason }, (*writer).stopReason),
	"events":         codec.List(func(o *enginecore.Output) []enginecore.Event { return o.Events }, (*writer).events),
	"trace_headers": {
		Set:   func(o *enginecore.Output) bool { return o.TraceHeaders != nil },
		Write: func(w *writer, o *enginecore.Output) { w.TextMap(o.TraceHeaders) },
	},
	"mm_cache_miss_hashes": codec.List(func(o *enginecore.Output) []string { return o.MMCacheMissHashes }, (*writer).Texts),
	"error":                codec.Pointer(func(o *enginecore.Output) *enginecore.RequestError { return o.Error }, (*writer).requestError),
	"routed_experts": {
		Set: func(o *enginecore.Output) bool { return o.RoutedExperts != nil },
		Write: func(w *writer, o *enginecore.Output) {
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
	"num_cached_tokens":            codec.Plain(func(o *enginecore.Output) int { return o.NumCachedTokens }, (*writer).int),
	"num_external_computed_tokens": codec.Plain(func(o *enginecore.Output) int { return o.NumExternalComputedTokens }, (*writer).int),
	"num_nans_in_logits":           codec.Plain(func(o *enginecore.Output) int { return o.NumNaNsInLogits }, (*writer).int),
}

func always(*enginecore.Output) bool { return true }

func anyField[T any](name string, of func(*T) any) codec.FieldWriter[*writer, T] {
	return codec.Plain(of, func(w *writer, v any) { pyvalue.Write(w.Encoder, "field "+name, v) })
}

func (w *writer) tensor(t *serde.Tensor) {
	if t == nil {
		w.Nil()
		return
	}
	pyvalue.WriteTensor(w.Encoder, t)
}

func (w *writer) finishReason(r enginecore.FinishReason) { w.int(int(r)) }

func (w *writer) requestError(e enginecore.RequestError) {
	w.Map(3)
	w.Text("code")
	w.Text(e.Code)
	w.Text("message")
	w.Text(e.Message)
	w.Text("retryable")
	w.Bool(e.Retryable)
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
	w.Array(len(list))
	for _, v := range list {
		w.Map(2)
		w.Text("type")
		w.int(int(v.Type))
		w.Text("timestamp")
		w.Float(v.Timestamp)
	}
}
