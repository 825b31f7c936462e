package enginecore

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/internal/pyvalue"
	"github.com/ringcache/ringcache/pycompat"
)

// Params are the sampling or pooling parameters of a request, of
// [Codec.ParseSampling] or [Codec.ParsePooling]: valid for the engines of one
// generation, immutable, and free of the memory that they were parsed from.
type Params struct {
	gen     *pycompat.Generation
	pooling bool
	values  map[string]any // canonical; what is None is absent
}

// ParseSampling parses sampling parameters by their names in vLLM, such as
// "temperature" and "max_tokens" (vllm/sampling_params.py); what is absent has the
// default that it has in Python.
//
// Values are nil (None), bool, integers and floats of any Go type, string,
// []byte, slices and maps of these (with strings or integers for keys), *[serde.Map]
// and, for what is an array in Python, *[serde.NDArray]. An integer does where Python
// has a float, and a map with decimal numbers for keys is fine for "logit_bias".
//
// A parameter that an engine does not take raises an exception in the engine's
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
// EngineCore runs one request for each sequence, see [Message.Child], and neither
// tokenizes nor compares texts: "stop" and "bad_words" mean nothing to it, the frontend
// looks for the stop strings and sends "_bad_words_token_ids".
//
// The error names the parameter and wraps [fs.ErrInvalid].
func (c *Codec) ParseSampling(params map[string]any) (*Params, error) {
	p := &Params{gen: c.gen, values: make(map[string]any, len(params))}
	for _, name := range sortedKeys(params) {
		v := params[name]
		var err error
		switch {
		case slices.Contains(c.gen.Params.Sampling, name):
			v, err = samplingTable[name].check(name, v, c.gen)
		case c.unknown:
			if v, err = pyvalue.Canonical(v); err != nil {
				err = paramError(name, "%s", err)
			}
			if err == nil {
				p.values[name] = v // None too: nobody knows the default
			}
		default:
			err = unknownParam(name, c.gen)
		}
		if err != nil {
			return nil, err
		}
		if v != nil {
			p.values[name] = v
		}
	}
	if err := checkTogether(p.values); err != nil {
		return nil, err
	}
	return p, nil
}

// ParsePooling is ParseSampling for pooling parameters (vllm/pooling_params.py).
func (c *Codec) ParsePooling(params map[string]any) (*Params, error) {
	p := &Params{gen: c.gen, pooling: true, values: make(map[string]any, len(params))}
	for _, name := range sortedKeys(params) {
		if !slices.Contains(c.gen.Params.Pooling, name) {
			return nil, unknownParam(name, c.gen)
		}
		v, err := poolingTable[name].check(name, params[name], c.gen)
		if err != nil {
			return nil, err
		}
		if v != nil {
			p.values[name] = v
		}
	}
	return p, nil
}

// Get returns a parameter as a decoder gives it, nil where it is absent or None:
// bool, int64 (uint64 above the largest), float64, string, []byte, []any,
// map[string]any, *[serde.Map], *[serde.NDArray] or *[serde.Tensor]. It must not be written to.
func (p *Params) Get(name string) any { return p.values[name] }

// N returns the number of sequences that are asked for.
func (p *Params) N() int { return p.integer("n", 1) }

// defaultMaxTokens is vLLM's default of max_tokens (vllm/sampling_params.py).
const defaultMaxTokens = 16

// MaxTokens returns the number of tokens that each sequence may have.
func (p *Params) MaxTokens() int { return p.integer("max_tokens", defaultMaxTokens) }

func (p *Params) integer(name string, absent int) int {
	if n, given := p.values[name].(int64); given {
		return int(n)
	}
	return absent
}

func paramError(name, format string, args ...any) error {
	return codec.Invalid(fmt.Sprintf("parameter %.64q", name), format, args...)
}

func unknownParam(name string, g *pycompat.Generation) error {
	return paramError(name, "vLLM %s has none of that name and would ignore it", g.Version)
}

// checkTogether checks what several parameters must agree on.
func checkTogether(p map[string]any) error {
	n, _ := p["n"].(int64)
	if t, given := p["temperature"].(float64); given && t < 1e-5 && n > 1 {
		return paramError("n", "it is %d, must be 1 with a temperature of 0", n)
	}
	most, given := p["max_tokens"].(int64)
	if !given {
		most = defaultMaxTokens
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
			"prompt_logprobs", "prompt_logprob_token_ids", "structured_outputs", "repetition_detection",
			"thinking_token_budget",
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
func (p *Params) withEOS(eos uint32) (*Params, error) {
	if eos > mostTokenID {
		return nil, codec.Invalid("field eos_token_id", "it is %d, must be at most %d", eos, mostTokenID)
	}
	if v := p.Get("_eos_token_id"); v != nil && v != int64(eos) {
		return nil, paramError("_eos_token_id", "it is %v, and EOSTokenID is %d; give one of them", v, eos)
	}
	out := maps.Clone(p.values)
	delete(out, "_eos_token_id")
	if p.Get("ignore_eos") != true && slices.Contains(p.gen.Params.Sampling, "_eos_token_id") {
		out["_eos_token_id"] = int64(eos)
	}
	if ids := list(p.Get("_all_stop_token_ids")); !slices.Contains(ids, any(int64(eos))) {
		out["_all_stop_token_ids"] = append(slices.Clip(ids), int64(eos))
	}
	return &Params{gen: p.gen, values: out}, nil
}

// params writes the parameters of one of the kinds, or None.
func (w *writer) params(pooling bool) {
	switch p := w.m.params; {
	case p == nil || p.pooling != pooling:
		w.Nil()
	case pooling:
		w.Array(len(w.c.gen.Params.Pooling))
		for _, name := range w.c.gen.Params.Pooling {
			v := p.Get(name)
			if v == nil {
				v = poolingDefault(name, w.c.gen)
			}
			pyvalue.WriteCanonical(w.Encoder, v)
		}
	default:
		w.sampling(p)
	}
}

func (w *writer) sampling(p *Params) {
	// msgspec leaves room for the number before it knows which values are
	// defaults, so the header has 16 bits always.
	w.m.entries = len(p.values)
	w.m.header = w.mark(func() { w.Map16(len(p.values)) })
	write := func(name string) {
		at := w.mark(func() {
			w.Text(name)
			pyvalue.WriteCanonical(w.Encoder, p.values[name])
		})
		switch name {
		case "n":
			w.m.n = at
		case "seed":
			w.m.seed = span{at.from + len("\xa4seed"), at.to}
		}
	}
	known, written := w.c.gen.Params.Sampling, 0
	for _, name := range known {
		if _, given := p.values[name]; given {
			write(name)
			written++
		}
	}
	if written == len(p.values) {
		return
	}
	for _, name := range sortedKeys(p.values) {
		if !slices.Contains(known, name) {
			write(name)
		}
	}
}

func sortedKeys(m map[string]any) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
