package serde

import (
	"fmt"
	"slices"
)

// EncodeRequest returns the frames of a request: the main document and the
// tensors, which alias the request's.
//
// It refuses what an engine dies of, or what makes its input thread raise an
// exception, after which it hears nothing any more (see [Params.Validate]): a
// request without parameters or with both kinds, without a prompt, with
// embeddings or a mask for another number of places, for pooling without a task.
// It does not know the model, so the caller answers for it that all tokens are
// in the vocabulary and that the prompt and what is generated fit into the
// model's length.
//
// EOSTokenID becomes what vLLM's own frontend makes of it: from 0.17.0 on the
// parameter _eos_token_id, unless ignore_eos is set, before a field of the
// request; and in every release an element of _all_stop_token_ids.
//
// The error wraps [ErrInvalid] and names the field; a field that is set and that
// the generation does not have is one, too.
func EncodeRequest(r *EngineCoreRequest, o Options) (Frames, error) {
	if r == nil {
		return nil, &InvalidError{"request", "it is a nil *EngineCoreRequest"}
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	return encodeRequest(r, o)
}

var requestNames = sortedKeys(requestTable)

// encodeRequest writes what the fields can express, also what no engine takes.
func encodeRequest(r *EngineCoreRequest, o Options) (Frames, error) {
	e := newEncoder(o)
	for _, name := range requestNames {
		if requestTable[name].set(r) && !slices.Contains(e.gen.RequestFields, name) {
			return nil, &InvalidError{"field " + name, fmt.Sprintf("vLLM %s has none; leave it unset", e.gen.Version)}
		}
	}
	e.anyParams = o.AllowUnknownParams
	names := e.gen.RequestFields
	e.array(len(names))
	for _, name := range names {
		requestTable[name].encode(e, r)
		if e.err != nil {
			return nil, e.err
		}
	}
	return e.filled()
}

// check refuses what an engine of no release takes.
func (r *EngineCoreRequest) check() error {
	switch {
	case r.SamplingParams == nil && r.PoolingParams == nil:
		return &InvalidError{"field sampling_params", "it and pooling_params are both unset; set one (empty Params are the defaults)"}
	case r.SamplingParams != nil && r.PoolingParams != nil:
		return &InvalidError{"field pooling_params", "it and sampling_params are both set; set one"}
	case r.PoolingParams != nil && r.PoolingParams["task"] == nil:
		return paramError("task", "it is not set; vLLM's frontend chooses one that the model supports, an engine dies of the lack")
	case r.ClientIndex < 0:
		return &InvalidError{"field client_index", fmt.Sprintf("it is %d, must be that of one of the output sockets", r.ClientIndex)}
	case r.DataParallelRank != nil && *r.DataParallelRank < 0:
		return &InvalidError{"field data_parallel_rank", fmt.Sprintf("it is %d, must be 0 or more", *r.DataParallelRank)}
	}
	for i := range r.Features {
		f := &r.Features[i]
		if t := f.IsEmbed; t != nil && (len(t.Shape) != 1 || t.Shape[0] != f.Length) {
			return &InvalidError{"field mm_features", fmt.Sprintf("feature %d: IsEmbed has the shape %v, must have one element for each of %d tokens", i, t.Shape, f.Length)}
		}
	}
	return r.checkPrompt()
}

func (r *EngineCoreRequest) checkPrompt() error {
	n := len(r.PromptTokenIDs)
	if t := r.PromptEmbeds; t != nil {
		if len(t.Shape) != 2 {
			return &InvalidError{"field prompt_embeds", fmt.Sprintf("its shape is %v, must be places and width", t.Shape)}
		}
		if r.PromptTokenIDs != nil && n != t.Shape[0] {
			return &InvalidError{"field prompt_embeds", fmt.Sprintf("it has %d places, prompt_token_ids has %d", t.Shape[0], n)}
		}
		n = t.Shape[0]
	}
	if n == 0 {
		return &InvalidError{"field prompt_token_ids", "there is no prompt; give at least one token, or prompt_embeds"}
	}
	if m := r.PromptIsTokenIDs; m != nil {
		if r.PromptTokenIDs == nil || r.PromptEmbeds == nil {
			return &InvalidError{"field prompt_is_token_ids", "it needs prompt_token_ids and prompt_embeds, to choose between them"}
		}
		if len(m) != n {
			return &InvalidError{"field prompt_is_token_ids", fmt.Sprintf("it has %d places, the prompt has %d", len(m), n)}
		}
	}
	return nil
}

// DecodeRequest reads a request. As Python does it accepts longer arrays, and
// shorter ones where the rest has defaults. From 0.17.0 on EOSTokenID is what
// the sampling parameters have as _eos_token_id, which then is not among them.
// Tensors are views of f. Parameters are not validated. The error wraps
// [ErrCorrupt] or [ErrUnsupported].
func DecodeRequest(f Frames, o Options) (*EngineCoreRequest, error) {
	return decodeWhole(f, o, (*decoder).request)
}

func (d *decoder) request() (*EngineCoreRequest, error) {
	n, err := d.array("request")
	if err != nil {
		return nil, err
	}
	d.anyFrames = true
	r := &EngineCoreRequest{}
	names := d.gen.RequestFields
	for i := range max(n, len(names)) {
		switch {
		case i >= len(names):
			err = d.skip("request")
		case i < n:
			err = requestTable[names[i]].decode(d, r)
		case requestTable[names[i]].required:
			err = d.corrupt("request", "the field "+names[i], fmt.Sprintf("an array of %d", n))
		}
		if err != nil {
			return nil, err
		}
	}
	if eos, isInt := r.SamplingParams["_eos_token_id"].(int64); isInt && eos == int64(uint32(eos)) && r.EOSTokenID == nil {
		token := uint32(eos)
		r.EOSTokenID = &token
		delete(r.SamplingParams, "_eos_token_id")
	}
	return r, nil
}
