package engine

import (
	"errors"
	"fmt"
	"math"
	"reflect"

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
	case limit > 0 && len(r.Prompt) >= limit:
		return r.refuse("prompt", fmt.Errorf("it has %d tokens, and the engine's max_model_len is %d", len(r.Prompt), limit))
	case r.More.PromptEmbeds != nil || r.More.PromptIsTokenIDs != nil:
		return r.refuse("prompt", errors.New("embeddings in place of tokens are not supported"))
	case r.More.PoolingParams != nil:
		return r.refuse("pooling parameters", errors.New("models that pool are not supported"))
	case r.More.LoRA != nil && s.ready.Rest["supports_lora"] != true:
		return r.refuse("LoRA", errors.New("the engine does not say that it supports adapters"))
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
var tokenParams = []string{"stop_token_ids", "allowed_token_ids", "_bad_words_token_ids", "logit_bias", "logprob_token_ids"}

func (s *session) params(r *Request) error {
	if err := r.Params.Validate(s.gen); err != nil {
		return r.refuse("parameters", err)
	}
	if _, err := r.children(); err != nil {
		return r.refuse("parameter n", err)
	}
	for _, name := range tokenParams {
		if err := tokensBelow(reflect.ValueOf(r.Params[name]), int64(s.c.o.Model.VocabSize)); err != nil {
			return r.refuse("parameter "+name, err)
		}
	}
	return nil
}

// tokensBelow checks the integers of lists, and those that are keys of maps.
func tokensBelow(v reflect.Value, limit int64) error {
	for v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	switch {
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
		if n, limit := p.embeds(), max(d.MaxTokens, s.ready.MaxNumBatchedTokens); limit > 0 && n > limit {
			return r.refuse(what, fmt.Errorf("%d tokens never fit into a batch of %d (max_num_batched_tokens)", n, limit))
		}
	}
	return nil
}

// items checks what is about to be sent for the items, down to the bytes that
// the workers will read.
func (s *session) items(r *Request, wires []mmcache.Wire) error {
	if len(wires) != len(r.Placeholders) {
		return r.refuse("placeholders", fmt.Errorf("there are %d for %d items", len(r.Placeholders), len(wires)))
	}
	for i, w := range wires {
		p := r.Placeholders[i]
		n, err := s.tokens(w, s.c.o.Model.Modalities[p.modality()])
		if err == nil && n != p.embeds() {
			err = fmt.Errorf("it takes %d tokens, and its placeholder has %d", n, p.embeds())
		}
		if err != nil {
			return r.refuse(fmt.Sprintf("item %d, key %q", i, w.Key), err)
		}
	}
	return nil
}

// tokens returns the number of placeholder tokens that an item takes, after
// looking at the item as the engine will have it.
func (s *session) tokens(w mmcache.Wire, d Modality) (int, error) {
	it, err := w.Stored()
	if err != nil {
		return 0, err
	}
	if it == nil { // the engine has it, from an earlier request
		n, ok := s.sent.get(w.Key)
		if !ok {
			return 0, errors.New("the engine is said to have it, but it was not sent through this client")
		}
		return n, nil
	}
	n, err := d.tokens(it)
	if err == nil && s.c.mode() == mmcache.LRU {
		s.sent.put(w.Key, n)
	}
	return n, err
}

// options are those of what is sent to the engine.
func (s *session) options() serde.Options { return serde.Options{Generation: s.gen} }
