package enginecore_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine/enginetest/wire"
	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/serde/enginecore"
)

func ones(n int) []byte {
	return []byte(strings.Repeat("\x00\x00\x80\x3f", n))
}

// goldenRequest is what the generator of the golden files encoded under a name.
// The parameters are what Python has after __post_init__: lists in place of None.
func goldenRequest(t testing.TB, p pair, name string) *enginecore.Request {
	g := p.gen
	fs := goldenFeatures(g.ItemForm)
	r := &enginecore.Request{RequestID: "req-1", PromptTokenIDs: []uint32{1, 2, 3}, ArrivalTime: 1.25}
	params := func(all map[string]any) *enginecore.Params {
		for _, k := range []string{"stop", "stop_token_ids", "bad_words"} {
			if _, given := all[k]; !given {
				all[k] = []string{}
			}
		}
		if slices.Contains(g.Params.Sampling, "skip_reading_prefix_cache") {
			all["skip_reading_prefix_cache"] = false
		}
		return p.sampling(t, all)
	}
	switch name {
	case "minimal":
	case "mm":
		r.Features = fs
	case "all_optional":
		r.Features = fs[:1]
		r.CacheSalt = ptr("salt")
		r.DataParallelRank = ptr(1)
		r.PromptEmbeds = &serde.Tensor{DType: "float32", Shape: []int{2, 3}, Data: ones(6)}
		r.ClientIndex, r.CurrentWave, r.Priority = 2, 3, -1
		r.TraceHeaders = map[string]string{"traceparent": "x"}
		has := func(name string) bool { return slices.Contains(g.RequestFields, name) }
		if has("eos_token_id") {
			r.EOSTokenID = ptr(uint32(2))
		}
		if has("prompt_is_token_ids") {
			r.PromptIsTokenIDs = []bool{true, false}
		}
		r.Resumable = has("resumable")
		if has("external_req_id") {
			r.ExternalReqID = ptr("ext")
		}
		if has("reasoning_ended") {
			r.ReasoningEnded = ptr(false)
		}
		if has("reasoning_parser_kwargs") {
			r.ReasoningParserKwargs = map[string]any{"a": 1}
		}
		r.AbortImmediately = has("abort_immediately")
		if has("session_id") {
			r.SessionID = ptr("s1")
		}
	case "lora":
		r.LoRA = &enginecore.LoRA{Name: "l", ID: 7, Path: "/p"}
	case "sp_default":
		r.Params = params(map[string]any{})
	case "sp_greedy":
		r.Params = params(map[string]any{"temperature": 0}) // max_tokens is its default
	case "sp_rich":
		r.Params = params(map[string]any{
			"n": 2, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "seed": 7, "stop": []string{"a", "bb"}, "ignore_eos": true,
			"max_tokens": 9, "min_tokens": 1, "logprobs": 2, "output_text_buffer_length": 1,
		})
	case "pooling":
		r.Params = p.pooling(t, nil)
	default:
		t.Fatalf("request %q", name)
	}
	return r
}

func TestGoldenRequests(t *testing.T) {
	for _, f := range goldentest.Files(t, "requests") {
		f.Each(t, func(t *testing.T, g *pycompat.Generation) {
			p := newPair(t, g, 0)
			checked := 0
			for _, row := range goldentest.Rows[goldentest.Frames](t, f, "requests") {
				r := goldenRequest(t, p, row.Name)
				if row.Name == "pooling" && g.Params.PoolingSkip {
					// What these releases encode they can't decode: None in place of a
					// bool.
					at := strings.Index(string(row.Frames[0].Raw), "\xc2\xc0\xc0\x02")
					require.Positive(t, at)
					row.Frames[0].Raw[at+1] = 0xc2
				}
				m, err := p.EncodeUnchecked(r)
				require.NoError(t, err, row.Name)
				require.Equal(t, []byte{0}, m.Frames()[0])
				body := m.Frames()[1:]
				row.Equal(t, body)

				checkedMessage, err := p.EncodeRequest(r)
				switch {
				case r.Params == nil: // which no engine takes
					invalid(t, err, "sampling_params")
				case row.Name == "pooling":
					invalid(t, err, `parameter "task"`)
				default:
					require.NoError(t, err, row.Name)
					require.Equal(t, m.Frames(), checkedMessage.Frames())
				}

				back, err := p.request(body...)
				require.NoError(t, err, row.Name)
				again, err := p.EncodeUnchecked(p.again(t, back))
				require.NoError(t, err, row.Name)
				require.Equal(t, m.Frames(), again.Frames(), row.Name)
				checked++
			}
			f.Report(t, checked, nil)
		})
	}
}

func goldenOutputs(t testing.TB, name string) *enginecore.Outputs {
	m := &enginecore.Outputs{Timestamp: 1.5}
	one := func(o enginecore.Output) { o.RequestID = "r"; m.Outputs = []enginecore.Output{o} }
	switch name {
	case "one":
		one(enginecore.Output{NewTokenIDs: []uint32{5, 70000}})
	case "finish":
		one(enginecore.Output{NewTokenIDs: []uint32{2}, FinishReason: ptr(enginecore.FinishStop), StopReason: "x"})
		m.EngineIndex, m.FinishedRequests = 1, []string{"r"}
	case "mm_miss":
		one(enginecore.Output{FinishReason: ptr(enginecore.FinishError), MMCacheMissHashes: []string{"a", "b"}})
		m.FinishedRequests = []string{"r"}
	case "error":
		one(enginecore.Output{FinishReason: ptr(enginecore.FinishError), Error: &enginecore.RequestError{Code: "c", Message: "m", Retryable: true}})
	case "events":
		one(enginecore.Output{NewTokenIDs: []uint32{1}, Events: []enginecore.Event{{Type: enginecore.EventQueued, Timestamp: 2.5}}})
	case "pooling":
		one(enginecore.Output{PoolingOutput: &serde.Tensor{DType: "float32", Shape: []int{3}, Data: ones(3)}})
	case "utility_none":
		m.Answer = &enginecore.Answer{CallID: 9}
	case "utility_true":
		m.Answer = &enginecore.Answer{CallID: 9, Result: true}
	case "utility_fail":
		m.Answer = &enginecore.Answer{CallID: 9, Failure: ptr("boom")}
	case "wave":
		m.WaveComplete = ptr(4)
	case "start_wave":
		m.EngineIndex, m.StartWave = 3, ptr(5)
	default:
		t.Fatalf("outputs %q", name)
	}
	return m
}

func TestGoldenOutputs(t *testing.T) {
	for _, f := range goldentest.Files(t, "requests") {
		f.Each(t, func(t *testing.T, g *pycompat.Generation) {
			p := newPair(t, g, 0)
			checked := 0
			for _, row := range goldentest.Rows[goldentest.Frames](t, f, "outputs") {
				m := goldenOutputs(t, row.Name)
				got, err := p.engine.EncodeOutputs(m)
				require.NoError(t, err, row.Name)
				row.Equal(t, got)
				back, err := p.DecodeOutputs(got)
				require.NoError(t, err, row.Name)
				for i := range m.Outputs {
					if m.Outputs[i].NewTokenIDs == nil {
						m.Outputs[i].NewTokenIDs = []uint32{}
					}
				}
				if m.Outputs == nil {
					m.Outputs = []enginecore.Output{}
				}
				require.Equal(t, m, back, row.Name)
				checked++
			}
			f.Report(t, checked, nil)
		})
	}
}

func TestGoldenUtility(t *testing.T) {
	for _, f := range goldentest.Files(t, "requests") {
		f.Each(t, func(t *testing.T, g *pycompat.Generation) {
			p := newPair(t, g, 0)
			calls := map[string]*enginecore.Call{
				"reset_mm_cache": {ID: 17, Method: "reset_mm_cache", Args: []any{}},
				"sleep":          {ID: 1 << 63, Method: "sleep", Args: []any{int64(1)}},
			}
			checked := 0
			for _, row := range goldentest.Rows[goldentest.Frames](t, f, "utility") {
				require.Len(t, row.Frames, 1)
				checked++
				if row.Name == "abort" {
					ids := []string{"r1", "r2"}
					got, err := enginecore.EncodeAbort(ids)
					require.NoError(t, err)
					require.Equal(t, []byte{1}, got[0])
					row.Equal(t, got[1:])
					back, err := p.engine.Decode(got)
					require.NoError(t, err)
					require.Equal(t, wire.Abort(ids), back)
					continue
				}
				c := calls[row.Name]
				require.NotNil(t, c, row.Name)
				got, err := p.EncodeCall(c)
				require.NoError(t, err)
				row.Equal(t, got[1:])
				back, err := p.engine.Decode(got)
				require.NoError(t, err)
				require.Equal(t, c, back)
			}
			f.Report(t, checked, nil)
		})
	}
}
