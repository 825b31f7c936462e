package enginecore

import (
	"strconv"

	"github.com/ringcache/ringcache/serde"
)

// FinishReason is why a request ended
// (FinishReason in vllm/v1/engine/__init__.py).
type FinishReason int

// The reasons of vLLM 0.33.0. A decoder passes on those that it does not know.
const (
	FinishStop       FinishReason = 0 // a stop token or stop string
	FinishLength     FinishReason = 1 // max_tokens, or the model's length
	FinishAbort      FinishReason = 2 // by an abort
	FinishError      FinishReason = 3 // 0.13.0 on; may be tried again
	FinishRepetition FinishReason = 4 // 0.17.0 on; by repetition_detection
)

// String is the reason as vLLM's frontend reports it.
func (r FinishReason) String() string {
	switch r {
	case FinishStop:
		return "stop"
	case FinishLength:
		return "length"
	case FinishAbort:
		return "abort"
	case FinishError:
		return "error"
	case FinishRepetition:
		return "repetition"
	}
	return "FinishReason(" + strconv.Itoa(int(r)) + ")"
}

// Outputs is a message on the output socket of EngineCore
// (EngineCoreOutputs in vllm/v1/engine/__init__.py, 0.11.0 to 0.33.0). Fields of type any have
// values as [Codec.DecodeOutputs] gives them.
type Outputs struct {
	EngineIndex int
	// Outputs are what was made for some of the requests in one step.
	Outputs        []Output
	SchedulerStats any
	// Timestamp is in seconds, by the monotonic clock of the engine's host.
	Timestamp float64
	Answer    *Answer
	// FinishedRequests are ids, nil for None.
	FinishedRequests []string
	WaveComplete     *int
	StartWave        *int
	WeightVersion    *string // 0.32.0 on
	// Unread are errors for parts that could not be read, which are zero above; an
	// output is missing. Encoders ignore it.
	Unread []error
}

// Output is what one step made for one request.
type Output struct {
	RequestID   string
	NewTokenIDs []uint32
	// Logprobs and PromptLogprobs are nil or a list: token ids, logprobs, ranks
	// (each a *serde.NDArray or a *serde.Tensor, lists in 0.11.0) and more since.
	Logprobs       any
	PromptLogprobs any
	PoolingOutput  *serde.Tensor
	// FinishReason is nil while the request goes on.
	FinishReason *FinishReason
	// StopReason is nil, an int64 (a token) or a string.
	StopReason       any
	Events           []Event
	KVTransferParams any
	ECTransferParams any // 0.26.0 on
	TraceHeaders     map[string]string
	// PrefillStats comes with the first tokens (0.20.0 on): nil, or a
	// map[string]any.
	PrefillStats any
	// NumCachedTokens and NumExternalComputedTokens (0.16.0 on) are what there
	// was before PrefillStats.
	NumCachedTokens           int
	NumExternalComputedTokens int
	RoutedExperts             *serde.NDArray // 0.14.0 on
	NumNaNsInLogits           int            // 0.11.1 on
	// MMCacheMissHashes are the items that the engine's cache lacks: send the
	// request again with their data (0.28.0 on).
	MMCacheMissHashes     []string
	SamplingMask          any // 0.28.0 on
	SpecDecodeMetrics     any // 0.29.0 on
	PromptTokenIDLogprobs any // 0.31.0 on
	// Error is why a request with FinishError ended (0.33.0 on).
	Error *RequestError
	// Err is not nil if NewTokenIDs, FinishReason, StopReason or
	// MMCacheMissHashes could not be read: the frontend has to give the request
	// up. Unread are errors for other fields that could not be read. All of these
	// are zero above. Encoders ignore both.
	Err    error
	Unread []error
}

// Event is an EngineCoreEvent: what became of a request, and when.
type Event struct {
	Type      EventType
	Timestamp float64 // as Outputs.Timestamp
}

// EventType is the kind of an [Event].
type EventType int

// The kinds of vLLM 0.33.0.
const (
	EventQueued    EventType = 1
	EventScheduled EventType = 2
	EventPreempted EventType = 3
)

// RequestError is vLLM's error of one request (vllm/outputs.py, 0.33.0 on).
type RequestError struct {
	Code, Message string
	Retryable     bool
}

// Answer answers a [Call] (UtilityOutput in vllm/v1/engine/__init__.py).
type Answer struct {
	CallID uint64
	// Failure is why the call failed, nil if it did not.
	Failure *string
	// Result is what the method returned, nil for None or after a failure.
	Result any
	// Err is not nil if the answer came, but the parts above could not be read.
	// Encoders ignore it.
	Err error
	// ResultType names the Python types in Result, nil unless the engine runs
	// with VLLM_ALLOW_INSECURE_SERIALIZATION.
	ResultType any
}
