package serde

import (
	"fmt"
	"slices"

	"github.com/ringcache/ringcache/pycompat"
)

// Params are sampling or pooling parameters by their names in vLLM, such as
// "temperature" and "max_tokens" (vllm/sampling_params.py,
// vllm/pooling_params.py); what is absent has the default that it has in Python.
//
// Values are nil (None), bool, integers and floats of any Go type, string,
// []byte, slices and maps of these (with strings or integers for keys), *[Map]
// and, for what is an array in Python, *[NDArray]. An integer does where Python
// has a float, and a map with decimal numbers for keys is fine for "logit_bias".
//
// EngineCore runs one request for each sequence: there n is 1, and a frontend
// that is asked for more sends that many requests. EngineCore neither tokenizes
// nor compares texts: "stop" and "bad_words" mean nothing to it, the frontend
// looks for the stop strings and sends "_bad_words_token_ids".
type Params map[string]any

// Validate says whether an engine of the generation takes these as sampling
// parameters. One that it does not take raises an exception in the engine's
// input thread, which ends: the engine lives on and hears nothing any more. So
// whatever is not surely valid is refused:
//
//   - names that the generation does not have, which Python ignores in silence;
//   - values of another type, or outside the range that vLLM checks;
//   - None for max_tokens: give the number of tokens that the model has room for;
//   - structured_outputs other than a map with one constraint and the _backend
//     that the engine is to use, as vLLM's frontend sends it. A JSON schema is
//     best given as text, since a Go map has no order;
//   - best_of, logits_processors, guided_decoding, late_interaction_params and
//     late_chunking_params, whose forms this library does not know.
//
// What depends on the model and on how the engine is configured is left to the
// caller: the size of the vocabulary that token ids must lie in, the greatest
// number of logprobs, whether a grammar can be compiled, and whether the engine
// can do what a parameter asks for (thinking budgets, traces, scores).
//
// The error names the parameter and wraps [ErrInvalid].
func (p Params) Validate(g *pycompat.Generation) error {
	g, err := pycompat.Resolve(g)
	if err == nil {
		_, err = p.sampling(g, false)
	}
	return err
}

// ValidatePooling is Validate for pooling parameters.
func (p Params) ValidatePooling(g *pycompat.Generation) error {
	g, err := pycompat.Resolve(g)
	if err == nil {
		_, err = p.pooling(g)
	}
	return err
}

func paramError(name, format string, args ...any) error {
	return &InvalidError{fmt.Sprintf("parameter %.64q", name), fmt.Sprintf(format, args...)}
}

// unknown returns the error for the first name that is not among the fields.
func (p Params) unknown(fields []string, version string) error {
	for _, name := range sortedKeys(p) {
		if !slices.Contains(fields, name) {
			return paramError(name, "vLLM %s has none of that name and would ignore it", version)
		}
	}
	return nil
}

// sampling returns what is to be written, in that order.
func (p Params) sampling(g *pycompat.Generation, anyNames bool) (*Map, error) {
	if !anyNames {
		if err := p.unknown(g.Params.Sampling, g.Version); err != nil {
			return nil, err
		}
	}
	m := &Map{}
	byName := map[string]any{}
	for _, name := range g.Params.Sampling {
		v, given := p[name]
		if !given {
			continue
		}
		w, err := samplingTable[name].check(name, v, g)
		if err != nil {
			return nil, err
		}
		if w == nil { // None is what it is anyway
			continue
		}
		byName[name] = w
		m.Keys, m.Values = append(m.Keys, name), append(m.Values, w)
	}
	if err := checkTogether(byName); err != nil {
		return nil, err
	}
	if len(m.Keys) < len(p) && anyNames {
		for _, name := range sortedKeys(p) {
			if slices.Contains(g.Params.Sampling, name) {
				continue
			}
			w, err := canonical(p[name])
			if err != nil {
				return nil, paramError(name, "%s", err)
			}
			m.Keys, m.Values = append(m.Keys, name), append(m.Values, w)
		}
	}
	return m, nil
}

// checkTogether checks what several parameters must agree on.
func checkTogether(p map[string]any) error {
	n, _ := p["n"].(int64)
	if t, given := p["temperature"].(float64); given && t < 1e-5 && n > 1 {
		return paramError("n", "it is %d, must be 1 with a temperature of 0", n)
	}
	most, given := p["max_tokens"].(int64)
	if !given {
		most = 16 // vLLM's default
	}
	if least, _ := p["min_tokens"].(int64); least > most {
		return paramError("min_tokens", "it is %d, must be at most max_tokens, which is %d", least, most)
	}
	if detokenize, given := p["detokenize"].(bool); given && !detokenize {
		if s, isText := p["stop"].(string); isText && s != "" || !isText && len(list(p["stop"])) > 0 {
			return paramError("stop", "it needs detokenize, which is false")
		}
	}
	if ids := list(p["logprob_token_ids"]); ids != nil {
		if k, given := p["logprobs"].(int64); given && k != int64(len(ids)) {
			return paramError("logprobs", "it is %d, must be the number of logprob_token_ids, which is %d", k, len(ids))
		}
	}
	if p["trace_decode_token_ids"] != nil {
		for _, other := range []string{
			"prompt_logprobs", "prompt_logprob_token_ids", "structured_outputs", "repetition_detection", "thinking_token_budget",
		} {
			if p[other] != nil {
				return paramError("trace_decode_token_ids", "it does not go with %s", other)
			}
		}
		if n > 1 || len(list(p["bad_words"])) > 0 {
			return paramError("trace_decode_token_ids", "it goes neither with n nor with bad_words")
		}
	}
	return nil
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

// withEOS returns the parameters as vLLM's frontend sends them where there is a
// token that ends the text.
func (p Params) withEOS(eos uint32, fields []string) (Params, error) {
	out := make(Params, len(p)+2)
	for k, v := range p {
		out[k] = v
	}
	if v, given := p["_eos_token_id"]; given && v != nil {
		if c, err := canonical(v); err != nil || c != int64(eos) {
			return nil, paramError("_eos_token_id", "it is %v, and EOSTokenID is %d; give one of them", v, eos)
		}
	}
	delete(out, "_eos_token_id")
	if ignore, _ := canonical(p["ignore_eos"]); ignore != true && slices.Contains(fields, "_eos_token_id") {
		out["_eos_token_id"] = int64(eos)
	}
	all, err := canonical(p["_all_stop_token_ids"])
	if err != nil {
		return nil, paramError("_all_stop_token_ids", "%s", err)
	}
	ids, isList := all.([]any)
	if all != nil && !isList {
		return out, nil // whatever it is, it will be refused
	}
	if !slices.Contains(ids, any(int64(eos))) {
		out["_all_stop_token_ids"] = append(slices.Clip(ids), int64(eos))
	}
	return out, nil
}

func (e *encoder) sampling(r *EngineCoreRequest) {
	p := r.SamplingParams
	if p == nil {
		e.null()
		return
	}
	var err error
	if r.EOSTokenID != nil {
		if p, err = p.withEOS(*r.EOSTokenID, e.gen.Params.Sampling); err != nil {
			e.keep(err)
			return
		}
	}
	m, err := p.sampling(e.gen, e.anyParams)
	if err != nil {
		e.keep(err)
		return
	}
	// msgspec leaves room for the number before it knows which values are
	// defaults, so the header has 16 bits always.
	e.buf.Write([]byte{0xde, byte(len(m.Keys) >> 8), byte(len(m.Keys))})
	for i, k := range m.Keys {
		e.value(k)
		e.value(m.Values[i])
	}
}

func (d *decoder) sampling() (Params, error) {
	const what = "sampling_params"
	n, err := d.mapLen(what)
	if err != nil {
		return nil, err
	}
	p := make(Params, small(n))
	for range n {
		name, err := d.text(what)
		if err != nil {
			return nil, err
		}
		if err := d.charge(what, costEntry); err != nil {
			return nil, err
		}
		if p[name], err = d.anything("parameter "+name, name == "prompt_logprob_token_ids"); err != nil {
			return nil, err
		}
	}
	return p, nil
}
