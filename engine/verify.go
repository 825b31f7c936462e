package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ringcache/ringcache/mmcache"
)

// verify checks everything of a request but its items: what the engine's own
// frontend checks, and the engine does not. It returns the number of children.
// See docs/decisions.md, "What is not verified is not sent".
func (s *session) verify(r *Request) (children int, err error) {
	m, limit := s.c.o.Model, s.ready.MaxModelLen
	switch {
	case len(r.Prompt) == 0:
		return 0, r.refuse("prompt", errors.New("it is empty"))
	case len(r.Prompt) >= limit:
		return 0, r.refuse("prompt", fmt.Errorf("it has %d tokens, and the engine's max_model_len is %d",
			len(r.Prompt), limit))
	}
	for i, t := range r.Prompt {
		if int64(t) >= int64(m.VocabSize) {
			return 0, r.refuse("prompt", fmt.Errorf("token %d is %d, and the vocabulary has %d", i, t, m.VocabSize))
		}
	}
	if r.EOS != nil && int64(*r.EOS) >= int64(m.VocabSize) {
		return 0, r.refuse("EOS", fmt.Errorf("it is %d, and the vocabulary has %d", *r.EOS, m.VocabSize))
	}
	if children, err = s.params(r); err != nil {
		return 0, err
	}
	return children, s.placeholders(r)
}

func (r *Request) refuse(what string, err error) error {
	return &refusedError{r.ID, what, err}
}

// placeholders checks the places of the items, but not what belongs there.
func (s *session) placeholders(r *Request) error {
	if (r.Items == nil) != (len(r.Placeholders) == 0) {
		return r.refuse("placeholders", fmt.Errorf("there are %d; Items has to be given exactly if there are some",
			len(r.Placeholders)))
	}
	if r.Items != nil && s.c.o.Cache == nil {
		return r.refuse("items", errors.New("the client has no Cache"))
	}
	end := 0
	for i, p := range r.Placeholders {
		refuse := func(err error) error { return r.refuse(fmt.Sprintf("placeholder %d", i), err) }
		d, ok := s.c.o.Model.Modalities[p.modality()]
		switch {
		case !ok:
			return refuse(fmt.Errorf("Model.Modalities has no %q", p.modality()))
		case p.Length < 1 || p.Offset < 0 || p.Offset > len(r.Prompt) || p.Length > len(r.Prompt)-p.Offset:
			return refuse(fmt.Errorf("its range %d+%d is not in the prompt of %d tokens",
				p.Offset, p.Length, len(r.Prompt)))
		case p.Offset < end:
			return refuse(fmt.Errorf("its range %d+%d begins before %d, where the one before ends: they have to be in the prompt's order", p.Offset, p.Length, end))
		case p.IsEmbed != nil && len(p.IsEmbed) != p.Length:
			return refuse(fmt.Errorf("IsEmbed has %d entries for %d tokens", len(p.IsEmbed), p.Length))
		}
		end = p.Offset + p.Length
		for j, t := range r.Prompt[p.Offset:end] {
			if d.Placeholder != nil && t != *d.Placeholder && (p.IsEmbed == nil || p.IsEmbed[j]) {
				return refuse(fmt.Errorf("token %d of the prompt is %d, where %d stands for the item",
					p.Offset+j, t, *d.Placeholder))
			}
		}
		if n, limit := p.embeds(), max(d.MaxTokens, s.ready.MaxNumBatchedTokens); n > limit {
			return refuse(fmt.Errorf("%d tokens are more than %d: they fit neither into a batch (max_num_batched_tokens) nor within Modality.MaxTokens", n, limit))
		}
	}
	return s.stray(r)
}

// stray looks for tokens that stand for items where none is. A client's text can
// have them, and some models of older releases count them.
func (s *session) stray(r *Request) error {
	from := 0
	for i := range len(r.Placeholders) + 1 {
		to, next := len(r.Prompt), len(r.Prompt)
		if i < len(r.Placeholders) {
			p := &r.Placeholders[i]
			to, next = p.Offset, p.Offset+p.Length
		}
		first, modality := to, ""
		for name, d := range s.c.o.Model.Modalities {
			if d.Placeholder == nil {
				continue
			}
			if at := slices.Index(r.Prompt[from:first], *d.Placeholder); at >= 0 {
				first, modality = from+at, name
			}
		}
		if first < to {
			return r.refuse("prompt",
				fmt.Errorf("token %d is %d, which stands for an item of modality %q, and none is there",
					first, r.Prompt[first], modality))
		}
		from = next
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
	here := make(map[string]int, len(wires)) // what the request itself brings, for those that name it again
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
// looking at the item as the engine will have it, and adds it to here.
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
			return 0, errors.New("the cache expects the engine to have it, but it was not sent through this client")
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
