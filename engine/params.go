package engine

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"strconv"

	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/serde"
)

// tokenParams are the parameters that hold token ids, as values or as keys.
var tokenParams = []string{
	"stop_token_ids", "allowed_token_ids", "logit_bias", "logprob_token_ids", "prompt_logprob_token_ids", "trace_decode_token_ids",
	"_bad_words_token_ids", "_eos_token_id", "_all_stop_token_ids",
}

// countParams are how many tokens of the vocabulary are wanted; -1 is all.
var countParams = []string{"logprobs", "prompt_logprobs"}

// textParams are parameters that vLLM's own frontend deals with, and what the
// engine understands in their place.
var textParams = map[string]string{"stop": "stop_token_ids", "bad_words": "_bad_words_token_ids"}

func (s *session) params(r *Request) (children int, err error) {
	if err := r.Params.Validate(s.gen); err != nil {
		return 0, r.refuse("parameters", err)
	}
	n, err := r.children()
	switch {
	case err != nil:
		return 0, r.refuse("parameter n", err)
	case n > 1 && r.Items != nil && s.c.mode() == mmcache.LRU && !s.gen.Cache.MissError:
		// One child may push out what the next one names.
		return 0, r.refuse("parameter n", fmt.Errorf("it is %d, and vLLM %s does not survive a miss in its cache, which children can cause; use mode shm", n, s.gen.Version))
	}
	m := s.c.o.Model
	for _, name := range tokenParams {
		if err := tokensBelow(reflect.ValueOf(r.Params[name]), int64(m.VocabSize)); err != nil {
			return 0, r.refuse("parameter "+name, err)
		}
	}
	for _, name := range countParams {
		n, err := integer(r.Params[name])
		if limit := m.maxLogprobs(); err == nil && (n > int64(limit) || n < 0 && limit < m.VocabSize) {
			return 0, r.refuse("parameter "+name, fmt.Errorf("it is %d, and the most is %d (Model.MaxLogprobs)", n, limit))
		}
	}
	for name, limit := range sizeParams {
		if v := reflect.ValueOf(r.Params[name]); (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.Len() > limit {
			return 0, r.refuse("parameter "+name, fmt.Errorf("it has %d entries, and workers have room for %d", v.Len(), limit))
		}
	}
	for name, instead := range textParams {
		if v := reflect.ValueOf(r.Params[name]); v.IsValid() && (v.Kind() != reflect.Slice || v.Len() > 0) {
			return 0, r.refuse("parameter "+name, fmt.Errorf("it is text, which needs a tokenizer, and the engine ignores it; use %q", instead))
		}
	}
	if d := depth(reflect.ValueOf(r.Params["structured_outputs"])); d > maxDepth {
		return 0, r.refuse("parameter structured_outputs", fmt.Errorf("it is nested %d deep, and the most is %d: the engine's compiler would not come back", d, maxDepth))
	}
	return n, nil
}

// sizeParams bounds what the newer model runner has buffers of a fixed size for
// (vllm/v1/worker/gpu/sample/logit_bias.py and bad_words.py, 0.32.0).
var sizeParams = map[string]int{"allowed_token_ids": 1024, "logit_bias": 1024, "stop_token_ids": 128, "_bad_words_token_ids": 128}

// maxDepth is how deep vLLM's own frontend lets a schema be nested.
const maxDepth = 64 + 2 // with the levels around the schema

// depth is how deep lists and maps are nested, also in text, by its brackets.
func depth(v reflect.Value) int {
	for v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	most := 0
	switch v.Kind() {
	case reflect.String:
		open := 0
		for _, c := range []byte(v.String()) {
			switch c {
			case '{', '[', '(':
				open++
				most = max(most, open)
			case '}', ']', ')':
				open--
			}
		}
		return most
	case reflect.Slice:
		for i := range v.Len() {
			most = max(most, depth(v.Index(i)))
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			most = max(most, depth(it.Value()))
		}
	default:
		return 0
	}
	return most + 1
}

// tokensBelow checks the integers of lists, and those that are keys of maps, where
// JSON has them as text.
func tokensBelow(v reflect.Value, limit int64) error {
	for v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if v.IsValid() {
		if m, ok := v.Interface().(*serde.Map); ok && m != nil {
			v = reflect.ValueOf(m.Keys)
		}
	}
	switch {
	case v.Kind() == reflect.String:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil && (n < 0 || n >= limit) {
			return fmt.Errorf("token %s is outside of the vocabulary of %d", v, limit)
		}
	case v.Kind() == reflect.Slice, v.Kind() == reflect.Array:
		for i := range v.Len() {
			if err := tokensBelow(v.Index(i), limit); err != nil {
				return err
			}
		}
	case v.Kind() == reflect.Map:
		for _, k := range v.MapKeys() {
			if err := tokensBelow(k, limit); err != nil {
				return err
			}
		}
	case v.CanInt() && (v.Int() < 0 || v.Int() >= limit), v.CanUint() && v.Uint() >= uint64(limit):
		return fmt.Errorf("token %v is outside of the vocabulary of %d", v, limit)
	}
	return nil
}

// integer returns a parameter that is a whole number.
func integer(p any) (int64, error) {
	v := reflect.ValueOf(p)
	switch {
	case v.CanInt():
		return v.Int(), nil
	case v.CanUint() && v.Uint() <= math.MaxInt64:
		return int64(v.Uint()), nil
	}
	return 0, fmt.Errorf("%v is not a whole number", p)
}

// childParams returns the parameters of one of n children. Each of several has a seed
// of its own; -1 is none for vLLM.
func childParams(all Params, i, n int) Params {
	p := maps.Clone(all)
	if p == nil {
		p = Params{}
	}
	delete(p, "n")
	if n == 1 {
		return p
	}
	switch v := reflect.ValueOf(p["seed"]); {
	case v.CanInt() && v.Int() != -1:
		p["seed"] = v.Int() + int64(i)
	case v.CanUint():
		p["seed"] = v.Uint() + uint64(i)
	}
	return p
}

// children returns the number of sequences that are asked for.
func (r *Request) children() (int, error) {
	v, ok := r.Params["n"]
	if !ok {
		return 1, nil
	}
	n, err := integer(v)
	if err == nil && (n < 1 || n > maxChildren) {
		err = fmt.Errorf("%d is not between 1 and %d", n, maxChildren)
	}
	return int(n), err
}

// maxChildren is VLLM_MAX_N_SEQUENCES of vllm/envs.py.
const maxChildren = 16384
