package enginecore

import "github.com/ringcache/ringcache/internal/codec"

// writer writes a request, and notes where the parts lie that differ between children.
type writer struct {
	*codec.Encoder
	c *Codec
	m *Message
}

// mark writes something and returns its place.
func (w *writer) mark(write func()) span {
	from := w.Len()
	write()
	return span{from, w.Len()}
}

// EncodeRequest encodes a request. The frames of its tensors alias the request's.
//
// It refuses what an engine dies of, or what makes its input thread raise an
// exception, after which the engine hears nothing any more: a
// request without parameters, without a prompt, with
// embeddings or a mask for another number of places, for pooling without a task.
// It does not know the model, so the caller answers for it that all tokens are
// in the vocabulary and that the prompt and what is generated fit into the
// model's length.
//
// EOSTokenID becomes what vLLM's own frontend makes of it: from 0.17.0 on the
// parameter _eos_token_id, unless ignore_eos is set, before a field of the
// request; and in every release an element of _all_stop_token_ids.
//
// The error wraps [fs.ErrInvalid] and names the field; a field that is set and that
// the generation does not have is one, too.
func (c *Codec) EncodeRequest(r *Request) (*Message, error) {
	if r == nil {
		return nil, codec.Invalid("request", "it is a nil *Request")
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	return c.encodeRequest(r)
}

// encodeRequest writes what the fields can express, also what no engine takes.
func (c *Codec) encodeRequest(r *Request) (*Message, error) {
	for _, f := range c.absent {
		if f.Set(r) {
			return nil, codec.Invalid("field "+f.name, "vLLM %s has none; leave it unset", c.gen.Version)
		}
	}
	p, err := c.paramsOf(r)
	if err != nil {
		return nil, err
	}
	var e struct { // at one go
		codec.Encoder
		w writer
		m Message
	}
	e.Reset(c.threshold, make([]byte, 0, r.room()))
	e.m.params, e.m.requestID = p, r.RequestID
	e.w = writer{&e.Encoder, c, &e.m}
	w := &e.w
	w.Array(len(c.request))
	for _, f := range c.request {
		f.Write(w, r)
		if err := w.Err(); err != nil {
			return nil, err
		}
	}
	w.m.doc, w.m.aux = w.Main(), w.Aux()
	return w.m, nil
}

// room returns how many bytes the document of a request takes, about: a token has at
// most 5.
func (r *Request) room() int { return 512 + 5*len(r.PromptTokenIDs) + 512*len(r.Features) }

// paramsOf returns the parameters as they are sent.
func (c *Codec) paramsOf(r *Request) (*Params, error) {
	p := r.Params
	if p == nil {
		return nil, nil
	}
	if p.gen != c.gen {
		return nil, codec.Invalid("parameters", "they were parsed for vLLM %s, and the request is for %s",
			p.gen.Version, c.gen.Version)
	}
	if r.EOSTokenID == nil || p.pooling {
		return p, nil
	}
	return p.withEOS(*r.EOSTokenID)
}

// check refuses what an engine of no release takes.
func (r *Request) check() error {
	switch {
	case r.Params == nil:
		return codec.Invalid("field sampling_params",
			"it and pooling_params are both unset; parse one (an empty map is the defaults)")
	case r.Params.pooling && r.Params.Get("task") == nil:
		return paramError("task",
			"it is not set; vLLM's frontend chooses one that the model supports, an engine dies of the lack")
	case r.ClientIndex < 0:
		return codec.Invalid("field client_index", "it is %d, must be that of one of the output sockets", r.ClientIndex)
	case r.DataParallelRank != nil && *r.DataParallelRank < 0:
		return codec.Invalid("field data_parallel_rank", "it is %d, must be 0 or more", *r.DataParallelRank)
	}
	for i := range r.Features {
		f := &r.Features[i]
		if t := f.IsEmbed; t != nil && (len(t.Shape) != 1 || t.Shape[0] != f.Length) {
			return codec.Invalid("field mm_features",
				"feature %d: IsEmbed has the shape %v, must have one element for each of %d tokens", i,
				t.Shape, f.Length)
		}
	}
	return r.checkPrompt()
}

func (r *Request) checkPrompt() error {
	n := len(r.PromptTokenIDs)
	if t := r.PromptEmbeds; t != nil {
		if len(t.Shape) != 2 {
			return codec.Invalid("field prompt_embeds", "its shape is %v, must be places and width", t.Shape)
		}
		if r.PromptTokenIDs != nil && n != t.Shape[0] {
			return codec.Invalid("field prompt_embeds", "it has %d places, prompt_token_ids has %d", t.Shape[0], n)
		}
		n = t.Shape[0]
	}
	if n == 0 {
		return codec.Invalid("field prompt_token_ids", "there is no prompt; give at least one token, or prompt_embeds")
	}
	if m := r.PromptIsTokenIDs; m != nil {
		if r.PromptTokenIDs == nil || r.PromptEmbeds == nil {
			return codec.Invalid("field prompt_is_token_ids",
				"it needs prompt_token_ids and prompt_embeds, to choose between them")
		}
		if len(m) != n {
			return codec.Invalid("field prompt_is_token_ids", "it has %d places, the prompt has %d", len(m), n)
		}
	}
	return nil
}
