package agent

import (
	"errors"

	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// The JSON form of a message of the output socket, in both directions; the names
// are vLLM's. Err, Error and Unread of the library are texts, and only replied.
type (
	outputsJSON struct {
		EngineIndex      int          `json:"engine_index"`
		Outputs          []outputJSON `json:"outputs"`
		SchedulerStats   plain        `json:"scheduler_stats"`
		Timestamp        number       `json:"timestamp"`
		Utility          *utilityJSON `json:"utility_output"`
		FinishedRequests []string     `json:"finished_requests"`
		WaveComplete     *int         `json:"wave_complete"`
		StartWave        *int         `json:"start_wave"`
		WeightVersion    *string      `json:"weight_version"`
		Unread           []string     `json:"unread,omitempty"`
	}
	outputJSON struct {
		RequestID                 string                   `json:"request_id"`
		NewTokenIDs               []uint32                 `json:"new_token_ids"`
		Logprobs                  plain                    `json:"new_logprobs"`
		PromptLogprobs            plain                    `json:"new_prompt_logprobs_tensors"`
		PoolingOutput             plain                    `json:"pooling_output"`
		FinishReason              *enginecore.FinishReason `json:"finish_reason"`
		StopReason                plain                    `json:"stop_reason"`
		Events                    []eventJSON              `json:"events"`
		KVTransferParams          plain                    `json:"kv_transfer_params"`
		ECTransferParams          plain                    `json:"ec_transfer_params"`
		TraceHeaders              map[string]string        `json:"trace_headers"`
		PrefillStats              plain                    `json:"prefill_stats"`
		NumCachedTokens           int                      `json:"num_cached_tokens"`
		NumExternalComputedTokens int                      `json:"num_external_computed_tokens"`
		RoutedExperts             plain                    `json:"routed_experts"`
		NumNaNsInLogits           int                      `json:"num_nans_in_logits"`
		MMCacheMissHashes         []string                 `json:"mm_cache_miss_hashes"`
		SamplingMask              plain                    `json:"new_sampling_mask"`
		SpecDecodeMetrics         plain                    `json:"spec_decode_metrics"`
		PromptTokenIDLogprobs     plain                    `json:"prompt_token_id_logprobs"`
		Error                     *requestErrorJSON        `json:"error"`
		Failed                    string                   `json:"failed,omitempty"`
		Unread                    []string                 `json:"unread,omitempty"`
	}
	eventJSON struct {
		Type      enginecore.EventType `json:"type"`
		Timestamp number               `json:"timestamp"`
	}
	requestErrorJSON struct {
		Code      string `json:"code"`
		Message   string `json:"message"`
		Retryable bool   `json:"retryable"`
	}
	utilityJSON struct {
		CallID     uint64  `json:"call_id"`
		Failure    *string `json:"failure_message"`
		Result     plain   `json:"result"`
		ResultType plain   `json:"result_type"`
		Failed     string  `json:"failed,omitempty"`
	}
)

func outputsEncode(p *params) (reply, error) {
	c := p.engineCodec(p.threshold())
	var j outputsJSON
	strictly(p, "outputs", &j)
	m := j.message(p)
	f, err := c.EncodeOutputs(m)
	return hexFrames(f), err
}

func outputsDecode(p *params) (reply, error) {
	m, err := p.codec(0).DecodeOutputs(p.frames())
	if errors.Is(err, enginecore.ErrEngineDead) {
		return reply{"dead": true}, nil
	}
	if err != nil {
		return nil, err
	}
	return reply{"outputs": encodeOutputs(m)}, nil
}

func (j *outputsJSON) message(p *params) *enginecore.Outputs {
	m := &enginecore.Outputs{
		EngineIndex: j.EngineIndex, SchedulerStats: j.SchedulerStats.value, Timestamp: float64(j.Timestamp), FinishedRequests: j.FinishedRequests,
		WaveComplete: j.WaveComplete, StartWave: j.StartWave, WeightVersion: j.WeightVersion,
	}
	if u := j.Utility; u != nil {
		m.Answer = &enginecore.Answer{CallID: u.CallID, Failure: u.Failure, Result: u.Result.value, ResultType: u.ResultType.value}
	}
	for _, o := range j.Outputs {
		m.Outputs = append(m.Outputs, o.output(p))
	}
	return m
}

func (j *outputJSON) output(p *params) enginecore.Output {
	o := enginecore.Output{
		RequestID: j.RequestID, NewTokenIDs: j.NewTokenIDs, Logprobs: j.Logprobs.value, PromptLogprobs: j.PromptLogprobs.value, FinishReason: j.FinishReason,
		StopReason: j.StopReason.value, KVTransferParams: j.KVTransferParams.value, ECTransferParams: j.ECTransferParams.value, TraceHeaders: j.TraceHeaders,
		PrefillStats: j.PrefillStats.value, NumCachedTokens: j.NumCachedTokens, NumExternalComputedTokens: j.NumExternalComputedTokens,
		NumNaNsInLogits: j.NumNaNsInLogits, MMCacheMissHashes: j.MMCacheMissHashes, SamplingMask: j.SamplingMask.value,
		SpecDecodeMetrics: j.SpecDecodeMetrics.value, PromptTokenIDLogprobs: j.PromptTokenIDLogprobs.value,
	}
	var err error
	if o.PoolingOutput, err = tensorOf(j.PoolingOutput, "pooling_output"); err != nil {
		p.fail("%w", err)
	}
	switch v := j.RoutedExperts.value.(type) {
	case nil:
	case *serde.NDArray:
		o.RoutedExperts = v
	default:
		p.fail("routed_experts: want an $ndarray or null")
	}
	if j.Events != nil {
		o.Events = []enginecore.Event{}
	}
	for _, e := range j.Events {
		o.Events = append(o.Events, enginecore.Event{Type: e.Type, Timestamp: float64(e.Timestamp)})
	}
	if e := j.Error; e != nil {
		o.Error = &enginecore.RequestError{Code: e.Code, Message: e.Message, Retryable: e.Retryable}
	}
	return o
}

func encodeOutputs(m *enginecore.Outputs) *outputsJSON {
	j := &outputsJSON{
		EngineIndex: m.EngineIndex, Outputs: []outputJSON{}, SchedulerStats: plain{m.SchedulerStats}, Timestamp: number(m.Timestamp),
		FinishedRequests: m.FinishedRequests, WaveComplete: m.WaveComplete, StartWave: m.StartWave, WeightVersion: m.WeightVersion, Unread: errorTexts(m.Unread),
	}
	if u := m.Answer; u != nil {
		j.Utility = &utilityJSON{u.CallID, u.Failure, plain{u.Result}, plain{u.ResultType}, errorText(u.Err)}
	}
	for i := range m.Outputs {
		j.Outputs = append(j.Outputs, encodeOutput(&m.Outputs[i]))
	}
	return j
}

func encodeOutput(o *enginecore.Output) outputJSON {
	j := outputJSON{
		RequestID: o.RequestID, NewTokenIDs: o.NewTokenIDs, Logprobs: plain{o.Logprobs}, PromptLogprobs: plain{o.PromptLogprobs}, FinishReason: o.FinishReason,
		StopReason: plain{o.StopReason}, KVTransferParams: plain{o.KVTransferParams}, ECTransferParams: plain{o.ECTransferParams},
		TraceHeaders: o.TraceHeaders, PrefillStats: plain{o.PrefillStats}, NumCachedTokens: o.NumCachedTokens,
		NumExternalComputedTokens: o.NumExternalComputedTokens, NumNaNsInLogits: o.NumNaNsInLogits, MMCacheMissHashes: o.MMCacheMissHashes,
		SamplingMask: plain{o.SamplingMask}, SpecDecodeMetrics: plain{o.SpecDecodeMetrics}, PromptTokenIDLogprobs: plain{o.PromptTokenIDLogprobs},
		Failed: errorText(o.Err), Unread: errorTexts(o.Unread),
	}
	if o.PoolingOutput != nil {
		j.PoolingOutput = plain{o.PoolingOutput}
	}
	if o.RoutedExperts != nil {
		j.RoutedExperts = plain{o.RoutedExperts}
	}
	if o.Events != nil {
		j.Events = []eventJSON{}
	}
	for _, e := range o.Events {
		j.Events = append(j.Events, eventJSON{e.Type, number(e.Timestamp)})
	}
	if e := o.Error; e != nil {
		j.Error = &requestErrorJSON{e.Code, e.Message, e.Retryable}
	}
	return j
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func errorTexts(list []error) []string {
	var out []string
	for _, err := range list {
		out = append(out, err.Error())
	}
	return out
}
