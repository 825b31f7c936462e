package engine

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"

	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/serde"
)

// verify checks everything of a request but its items: what the engine's own
// frontend checks, and the engine does not.
func (s *session) verify(r *Request) error {
	m, limit := s.c.o.Model, s.ready.MaxModelLen
	switch {
	case len(r.Prompt) == 0:
		return r.refuse("prompt", errors.New("it is empty"))
	case len(r.Prompt) >= limit:
		return r.refuse("prompt", fmt.Errorf("it has %d tokens, and the engine's max_model_len is %d", len(r.Prompt), limit))
	case r.More.PromptEmbeds != nil || r.More.PromptIsTokenIDs != nil:
		return r.refuse("prompt", errors.New("embeddings in place of tokens are not supported"))
	case r.More.PoolingParams != nil:
		return r.refuse("pooling parameters", errors.New("models that pool are not supported"))
	case r.More.LoRA != nil:
		return r.refuse("LoRA", errors.New("adapters are not supported; the engine ends if it can't load one"))
	case r.More.AbortImmediately:
		return r.refuse("abort_immediately", errors.New("the engine would not answer"))
	case r.More.DataParallelRank != nil && *r.More.DataParallelRank != s.ready.DataParallelRank:
		return r.refuse("data_parallel_rank", fmt.Errorf("it is %d, and the engine's is %d", *r.More.DataParallelRank, s.ready.DataParallelRank))
	case r.More.ClientIndex != 0:
		return r.refuse("client_index", fmt.Errorf("it is %d, and the engine knows one frontend", r.More.ClientIndex))
	case r.More.Resumable:
		return r.refuse("resumable", errors.New("requests whose input is streamed are not supported"))
	}
	for i, t := range r.Prompt {
		if int64(t) >= int64(m.VocabSize) {
			return r.refuse("prompt", fmt.Errorf("token %d is %d, and the vocabulary has %d", i, t, m.VocabSize))
		}
	}
	if r.EOS != nil && int64(*r.EOS) >= int64(m.VocabSize) {
		return r.refuse("EOS", fmt.Errorf("it is %d, and the vocabulary has %d", *r.EOS, m.VocabSize))
	}
	if err := s.params(r); err != nil {
		return err
	}
	return s.placeholders(r)
}

func (r *Request) refuse(what string, err error) error {
	return &RefusedError{ID: r.ID, What: what, Err: err}
}

// tokenParams are the parameters that hold token ids, as values or as keys.
var tokenParams = []string{
	"stop_token_ids", "allowed_token_ids", "logit_bias", "logprob_token_ids", "prompt_logprob_token_ids", "trace_decode_token_ids",
	"_bad_words_token_ids", "_eos_token_id", "_all_stop_token_ids",
}

// countParams say how many tokens of the vocabulary are wanted; -1 is all.
var countParams = []string{"logprobs", "prompt_logprobs"}

// textParams are parameters that vLLM's own frontend deals with, and what the
// engine understands in their place.
var textParams = map[string]string{"stop": "stop_token_ids", "bad_words": "_bad_words_token_ids"}

func (s *session) params(r *Request) error {
	if err := r.Params.Validate(s.gen); err != nil {
		return r.refuse("parameters", err)
	}
	n, err := r.children()
	switch {
	case err != nil:
		return r.refuse("parameter n", err)
	case n > 1 && r.Items != nil && s.c.mirrored() && !s.gen.Cache.MissError:
		// One child may push out what the next one names.
		return r.refuse("parameter n", fmt.Errorf("it is %d, and vLLM %s does not survive a miss in its cache, which children can cause; use mode shm", n, s.gen.Version))
	}
	m := s.c.o.Model
	for _, name := range tokenParams {
		if err := tokensBelow(reflect.ValueOf(r.Params[name]), int64(m.VocabSize)); err != nil {
			return r.refuse("parameter "+name, err)
		}
	}
	for _, name := range countParams {
		n, err := integer(r.Params[name])
		if limit := m.maxLogprobs(); err == nil && (n > int64(limit) || n < 0 && limit < m.VocabSize) {
			return r.refuse("parameter "+name, fmt.Errorf("it is %d, and the most is %d (Model.MaxLogprobs)", n, limit))
		}
	}
	for name, limit := range sizeParams {
		if v := reflect.ValueOf(r.Params[name]); (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.Len() > limit {
			return r.refuse("parameter "+name, fmt.Errorf("it has %d entries, and workers have room for %d", v.Len(), limit))
		}
	}
	for name, instead := range textParams {
		if v := reflect.ValueOf(r.Params[name]); v.IsValid() && (v.Kind() != reflect.Slice || v.Len() > 0) {
			return r.refuse("parameter "+name, fmt.Errorf("it is text, which needs a tokenizer, and the engine ignores it; use %q", instead))
		}
	}
	if d := depth(reflect.ValueOf(r.Params["structured_outputs"])); d > maxDepth {
		return r.refuse("parameter structured_outputs", fmt.Errorf("it is nested %d deep, and the most is %d: the engine's compiler would not come back", d, maxDepth))
	}
	return nil
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

// placeholders checks the places of the items, but not what belongs there.
func (s *session) placeholders(r *Request) error {
	if (r.Items == nil) != (len(r.Placeholders) == 0) {
		return r.refuse("placeholders", fmt.Errorf("there are %d; Items has to be given exactly if there are some", len(r.Placeholders)))
	}
	if r.Items != nil && s.c.o.Cache == nil {
		return r.refuse("items", errors.New("the client has no Cache"))
	}
	end := 0
	for i, p := range r.Placeholders {
		what := fmt.Sprintf("placeholder %d", i)
		d, ok := s.c.o.Model.Modalities[p.modality()]
		switch {
		case !ok:
			return r.refuse(what, fmt.Errorf("Model.Modalities does not say what an item of modality %q looks like", p.modality()))
		case p.Length < 1 || p.Offset < 0 || p.Offset > len(r.Prompt) || p.Length > len(r.Prompt)-p.Offset:
			return r.refuse(what, fmt.Errorf("its range %d+%d is not in the prompt of %d tokens", p.Offset, p.Length, len(r.Prompt)))
		case p.Offset < end:
			return r.refuse(what, fmt.Errorf("its range %d+%d begins before %d, where the one before ends: they have to be in the prompt's order", p.Offset, p.Length, end))
		case p.IsEmbed != nil && len(p.IsEmbed) != p.Length:
			return r.refuse(what, fmt.Errorf("IsEmbed has %d entries for %d tokens", len(p.IsEmbed), p.Length))
		}
		end = p.Offset + p.Length
		for j, t := range r.Prompt[p.Offset:end] {
			if d.Placeholder != nil && t != *d.Placeholder && (p.IsEmbed == nil || p.IsEmbed[j]) {
				return r.refuse(what, fmt.Errorf("token %d of the prompt is %d, where %d stands for the item", p.Offset+j, t, *d.Placeholder))
			}
		}
		if n, limit := p.embeds(), max(d.MaxTokens, s.ready.MaxNumBatchedTokens); n > limit {
			return r.refuse(what, fmt.Errorf("%d tokens are more than %d: they fit neither into a batch (max_num_batched_tokens) nor within Modality.MaxTokens", n, limit))
		}
	}
	return s.stray(r)
}

// stray looks for tokens that stand for items where none is. A client's text can
// have them, and some models of older releases count them.
func (s *session) stray(r *Request) error {
	next := 0
	for i, t := range r.Prompt {
		for next < len(r.Placeholders) && i >= r.Placeholders[next].Offset+r.Placeholders[next].Length {
			next++
		}
		if next < len(r.Placeholders) && i >= r.Placeholders[next].Offset {
			continue
		}
		for name, d := range s.c.o.Model.Modalities {
			if d.Placeholder != nil && t == *d.Placeholder {
				return r.refuse("prompt", fmt.Errorf("token %d is %d, which stands for an item of modality %q, and none is there", i, t, name))
			}
		}
	}
	return nil
}

// items checks what is about to be sent for the items, down to the bytes that
// the workers will read, and returns their numbers of tokens.
func (s *session) items(r *Request, wires []mmcache.Wire) ([]int, error) {
	if len(wires) != len(r.Placeholders) {
		return nil, r.refuse("placeholders", fmt.Errorf("there are %d for %d items", len(r.Placeholders), len(wires)))
	}
	tokens := make([]int, len(wires))
	here := map[string]int{} // what the request itself brings, for those that name it again
	for i, w := range wires {
		p := r.Placeholders[i]
		n, err := s.tokens(w, s.c.o.Model.Modalities[p.modality()], here)
		if err == nil && n != p.embeds() {
			err = fmt.Errorf("it takes %d tokens, and its placeholder has %d", n, p.embeds())
		}
		if err != nil {
			return nil, r.refuse(fmt.Sprintf("item %d, key %q", i, w.Key), err)
		}
		tokens[i] = n
	}
	return tokens, nil
}

// tokens returns the number of placeholder tokens that an item takes, after
// looking at the item as the engine will have it. It takes note in here.
func (s *session) tokens(w mmcache.Wire, d Modality, here map[string]int) (int, error) {
	it, err := w.Stored()
	if err != nil {
		return 0, err
	}
	if it == nil { // the engine has it, from this request or an earlier one
		n, ok := here[w.Key]
		if !ok {
			n, ok = s.sent.get(w.Key)
		}
		if !ok {
			return 0, errors.New("the engine is said to have it, but it was not sent through this client")
		}
		return n, nil
	}
	n, err := d.tokens(it)
	if err == nil {
		err = s.sent.check(w.Key, n)
	}
	here[w.Key] = n
	return n, err
}

// options are those of what is sent to the engine.
func (s *session) options() serde.Options { return serde.Options{Generation: s.gen} }
