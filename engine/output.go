package engine

import (
	"bytes"
	"fmt"

	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// kept returns an output that shares no memory with the message that it came in: a
// reader may take its time, and a message has the outputs of all running requests.
func kept(o *enginecore.Output) *enginecore.Output {
	c := *o
	for _, v := range []*any{
		&c.Logprobs, &c.PromptLogprobs, &c.KVTransferParams, &c.ECTransferParams, &c.PrefillStats,
		&c.SamplingMask, &c.SpecDecodeMetrics, &c.PromptTokenIDLogprobs,
	} {
		*v = owned(*v)
	}
	if c.PoolingOutput != nil {
		c.PoolingOutput = owned(c.PoolingOutput).(*serde.Tensor)
	}
	if c.RoutedExperts != nil {
		c.RoutedExperts = owned(c.RoutedExperts).(*serde.NDArray)
	}
	return &c
}

// owned takes a decoded value, and returns it with copies of all bytes that belong to
// the message. Lists and maps are the decoder's own, and are changed.
func owned(v any) any {
	switch v := v.(type) {
	case []byte:
		return bytes.Clone(v)
	case *serde.Tensor:
		return &serde.Tensor{DType: v.DType, Shape: v.Shape, Data: bytes.Clone(v.Data)}
	case *serde.NDArray:
		return &serde.NDArray{DType: v.DType, Shape: v.Shape, Data: bytes.Clone(v.Data)}
	case *serde.Map:
		for i := range v.Values {
			v.Values[i] = owned(v.Values[i])
		}
	case []any:
		for i := range v {
			v[i] = owned(v[i])
		}
	case map[string]any:
		for k, x := range v {
			v[k] = owned(x)
		}
	}
	return v
}

// allowance is what the engine may send for a request, by which a stream is bounded
// whose reader does not read.
type allowance struct {
	tokens int    // for each child
	why    string // what bounds them
	empty  int    // outputs so far that brought no tokens, and were not the last of a child
}

// maxEmpty is how many outputs of a request may bring no tokens. vLLM sends such only
// where something else is to be reported, at the end (vllm/v1/core/sched/scheduler.py,
// update_from_output, 0.11.0 to 0.32.0).
const maxEmpty = 1024

// allowance is that of a request which was verified.
func (s *session) allowance(r *Request) allowance {
	a := allowance{tokens: r.params.MaxTokens(), why: "max_tokens"}
	if limit := s.ready.MaxModelLen; a.tokens > limit {
		a.tokens, a.why = limit, "max_model_len"
	}
	return a
}

// spend counts an output of a child, and returns why the engine may not send it.
func (a *allowance) spend(i int, c *child, o *enginecore.Output) error {
	n := len(o.NewTokenIDs)
	if c.tokens += n; c.tokens > a.tokens {
		return fmt.Errorf("the engine sent %d tokens for child %d, and %s is %d", c.tokens, i, a.why, a.tokens)
	}
	if n == 0 && o.FinishReason == nil {
		if a.empty++; a.empty > maxEmpty {
			return fmt.Errorf("the engine sent more than %d outputs with no tokens", maxEmpty)
		}
	}
	return nil
}
