package engine

import (
	"fmt"

	"github.com/ringcache/ringcache/serde"
)

// tokenParams are the parameters that hold token ids, as values or as keys.
var tokenParams = []string{
	"stop_token_ids", "allowed_token_ids", "logit_bias", "logprob_token_ids", "prompt_logprob_token_ids",
	"trace_decode_token_ids", "_bad_words_token_ids", "_eos_token_id", "_all_stop_token_ids",
}

// countParams are how many tokens of the vocabulary are wanted; -1 is all.
var countParams = []string{"logprobs", "prompt_logprobs"}

// textParams are parameters that vLLM's own frontend deals with, and what the
// engine understands in their place.
var textParams = map[string]string{"stop": "stop_token_ids", "bad_words": "_bad_words_token_ids"}

// sizeParams bounds what the newer model runner has buffers of a fixed size for
// (vllm/v1/worker/gpu/sample/logit_bias.py and bad_words.py, 0.32.0).
var sizeParams = map[string]int{
	"allowed_token_ids": 1024, "logit_bias": 1024, "stop_token_ids": 128, "_bad_words_token_ids": 128,
}

// params parses and verifies the parameters of a request. It returns the number of
// children.
func (s *session) params(r *Request) (children int, err error) {
	p, err := s.codec.Load().ParseSampling(r.Params)
	if err != nil {
		return 0, r.refuse("parameters", err)
	}
	r.params = p
	n := p.N()
	if n > 1 && r.Items != nil && s.c.mirrored() && !s.gen.Cache.MissError {
		// One child may push out what the next one names.
		return 0, r.refuse("parameter n",
			fmt.Errorf("it is %d, and vLLM %s does not survive a miss in its cache, which children can cause; use mode shm", n, s.gen.Version))
	}
	m := s.c.o.Model
	for _, name := range tokenParams {
		if err := tokensBelow(p.Get(name), int64(m.VocabSize)); err != nil {
			return 0, r.refuse("parameter "+name, err)
		}
	}
	for _, name := range countParams {
		n, given := p.Get(name).(int64)
		if limit := m.maxLogprobs(); given && (n > int64(limit) || n < 0 && limit < m.VocabSize) {
			return 0, r.refuse("parameter "+name,
				fmt.Errorf("it is %d, and the most is %d (Model.MaxLogprobs)", n, limit))
		}
	}
	for name, limit := range sizeParams {
		if n := length(p.Get(name)); n > limit {
			return 0, r.refuse("parameter "+name,
				fmt.Errorf("it has %d entries, and workers have room for %d", n, limit))
		}
	}
	for name, instead := range textParams {
		if v := p.Get(name); v != nil && (length(v) > 0 || !isList(v)) {
			return 0, r.refuse("parameter "+name,
				fmt.Errorf("it is text, which needs a tokenizer, and the engine ignores it; use %q", instead))
		}
	}
	if d := depth(p.Get("structured_outputs")); d > maxDepth {
		return 0, r.refuse("parameter structured_outputs",
			fmt.Errorf("it is nested %d deep, and the most is %d: the engine's compiler would not come back",
				d, maxDepth))
	}
	return n, nil
}

func isList(v any) bool {
	_, ok := v.([]any)
	return ok
}

// length returns the number of elements of a list or map, 0 for anything else.
func length(v any) int {
	switch v := v.(type) {
	case []any:
		return len(v)
	case map[string]any:
		return len(v)
	case *serde.Map:
		return len(v.Keys)
	}
	return 0
}

// tokensBelow checks the integers of a list, at any depth, and those that are keys of a map.
func tokensBelow(v any, limit int64) error {
	switch v := v.(type) {
	case int64:
		if v < 0 || v >= limit {
			return fmt.Errorf("token %d is outside of the vocabulary of %d", v, limit)
		}
	case []any:
		for _, x := range v {
			if err := tokensBelow(x, limit); err != nil {
				return err
			}
		}
	case *serde.Map:
		return tokensBelow(v.Keys, limit)
	}
	return nil
}

// maxDepth is how deep vLLM's own frontend lets a schema be nested.
const maxDepth = 64 + 2 // with the levels around the schema

// depth is how deep lists and maps are nested, also in text, by its brackets.
func depth(v any) int {
	most := 0
	switch v := v.(type) {
	case string:
		open := 0
		for _, c := range []byte(v) {
			switch c {
			case '{', '[', '(':
				open++
				most = max(most, open)
			case '}', ']', ')':
				open--
			}
		}
		return most
	case []any:
		for _, x := range v {
			most = max(most, depth(x))
		}
	case map[string]any:
		for _, x := range v {
			most = max(most, depth(x))
		}
	case *serde.Map:
		for _, x := range v.Values {
			most = max(most, depth(x))
		}
	default:
		return 0
	}
	return most + 1
}
