package engine

import (
	"fmt"

	"github.com/ringcache/ringcache/serde/enginecore"
)

// outputLimits bound what the engine may send for a request, and so a stream whose reader
// does not read. A request whose engine sends more fails.
type outputLimits struct {
	tokens int    // for each child
	why    string // what bounds them
	empty  int    // outputs so far that brought no tokens, and were not the last of a child
}

// maxEmpty is how many outputs of a request may bring no tokens. vLLM sends such only
// where something else is to be reported, at the end (vllm/v1/core/sched/scheduler.py,
// update_from_output, 0.11.0 to 0.32.0).
const maxEmpty = 1024

// outputLimits returns the limits of a request which was verified.
func (s *session) outputLimits(r *Request) outputLimits {
	l := outputLimits{tokens: r.params.MaxTokens(), why: "max_tokens"}
	if limit := s.ready.MaxModelLen; l.tokens > limit {
		l.tokens, l.why = limit, "max_model_len"
	}
	return l
}

// count counts an output of a child, and returns why the engine may not send it.
func (l *outputLimits) count(i int, c *child, o *enginecore.Output) error {
	n := len(o.NewTokenIDs)
	if c.tokens += n; c.tokens > l.tokens {
		return fmt.Errorf("the engine sent %d tokens for child %d, and %s is %d", c.tokens, i, l.why, l.tokens)
	}
	if n == 0 && o.FinishReason == nil {
		if l.empty++; l.empty > maxEmpty {
			return fmt.Errorf("the engine sent more than %d outputs with no tokens", maxEmpty)
		}
	}
	return nil
}
