package agent

import (
	"errors"

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
		Answer           *utilityJSON `json:"utility_output"`
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
		Err                       string                   `json:"failed,omitempty"`
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
		Err        string  `json:"failed,omitempty"`
	}
)

func outputsEncode(p *params) (reply, error) {
	c := p.engineCodec(p.threshold())
	var j outputsJSON
	strictly(p, "outputs", &j)
	m := &enginecore.Outputs{}
	if err := copySame(m, &j); err != nil {
		return nil, invalidf("%w", err)
	}
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
	j := &outputsJSON{}
	if err := copySame(j, m); err != nil {
		return nil, err
	}
	j.Outputs = list(j.Outputs)
	return reply{"outputs": j}, nil
}
