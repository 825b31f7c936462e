package enginecore

import (
	"fmt"
	"math"

	"github.com/ringcache/ringcache/internal/pyvalue"
	"github.com/ringcache/ringcache/pycompat"
)

// A param is one parameter: whether it may be None, and what else it may be.
type param struct {
	optional bool
	// form checks a canonical value that is not None, and returns it as it is
	// written. The error is the bare problem.
	form func(v any, g *pycompat.Generation) (any, error)
}

// check returns the value in the form that is written, nil for None.
func (p param) check(name string, v any, g *pycompat.Generation) (any, error) {
	c, err := pyvalue.Canonical(v)
	switch {
	case err != nil:
		return nil, paramError(name, "%s", err)
	case c != nil:
		if c, err = p.form(c, g); err != nil {
			return nil, paramError(name, "%s", err)
		}
		return c, nil
	case name == "max_tokens":
		return nil, paramError(name,
			"None is for vLLM's frontend only; give the number of tokens that the model has room for")
	case !p.optional:
		return nil, paramError(name, "it can't be None; leave it out for the default")
	}
	return nil, nil
}

// Bounds that vLLM's frontend checks, or that the types of the engine's tensors
// set.
const (
	mostSequences  = 16384 // VLLM_MAX_N_SEQUENCES
	mostScoredIDs  = 128   // MAX_LOGPROB_TOKEN_IDS
	mostTokenID    = math.MaxInt32
	mostCount      = math.MaxInt32
	fewestPatterns = 2
)

// samplingTable has every parameter of every release (vllm/sampling_params.py,
// the types of the fields, __post_init__ and _verify_args).
var samplingTable = map[string]param{
	"n":                             {form: integer(1, mostSequences)},
	"presence_penalty":              {form: number(-2, 2)},
	"frequency_penalty":             {form: number(-2, 2)},
	"repetition_penalty":            {form: above0(math.MaxFloat64)},
	"temperature":                   {form: temperature},
	"watermarking":                  {true, boolean},
	"top_p":                         {form: above0(1)},
	"top_k":                         {form: integer(-1, mostCount)},
	"min_p":                         {form: number(0, 1)},
	"seed":                          {true, anyInteger},
	"stop":                          {true, textOrTexts},
	"stop_token_ids":                {true, tokenIDs},
	"ignore_eos":                    {form: boolean},
	"max_tokens":                    {true, integer(1, mostCount)},
	"min_tokens":                    {form: integer(0, mostCount)},
	"logprobs":                      {true, integer(-1, mostCount)},
	"prompt_logprobs":               {true, integer(-1, mostCount)},
	"prompt_logprob_token_ids":      {true, scores},
	"prompt_logprob_start":          {true, integer(0, mostCount)},
	"logprob_token_ids":             {true, scoredIDs},
	"flat_logprobs":                 {form: boolean},
	"detokenize":                    {form: boolean},
	"skip_special_tokens":           {form: boolean},
	"spaces_between_special_tokens": {form: boolean},
	"include_stop_str_in_output":    {form: boolean},
	"output_kind":                   {form: integer(0, 2)},
	"stream_interval":               {true, integer(1, mostCount)},
	"skip_clone":                    {form: boolean},
	"output_text_buffer_length":     {form: integer(0, mostCount)},
	"_eos_token_id":                 {true, integer(0, mostTokenID)},
	"_all_stop_token_ids":           {form: tokenIDs},
	"_watermarking_skipped":         {form: boolean},
	"structured_outputs":            {true, structuredOutputs},
	"logit_bias":                    {true, logitBias},
	"allowed_token_ids":             {true, someTokenIDs},
	"extra_args":                    {true, anyMap},
	"bad_words":                     {true, texts},
	"_bad_words_token_ids":          {true, listsOfTokenIDs},
	"skip_reading_prefix_cache":     {true, boolean},
	"thinking_token_budget":         {true, integer(-1, mostCount)},
	"repetition_detection":          {true, repetitionDetection},
	"routed_experts_prompt_start":   {form: integer(0, mostCount)},
	"trace_decode_token_ids":        {true, someTokenIDs},
	"truncate_prompt_tokens":        {true, truncation},

	// vLLM's own frontend refuses the first three; the last is the old name of
	// structured_outputs.
	"best_of":           {true, noForm},
	"_real_n":           {true, noForm},
	"logits_processors": {true, noForm},
	"guided_decoding":   {true, noForm},
}

func wrong(v any, want string) error {
	switch v := v.(type) {
	case bool, int64, uint64, float64:
		return fmt.Errorf("it is the %T %v, must be %s", v, v, want)
	case string:
		return fmt.Errorf("it is %.64q, must be %s", v, want)
	}
	return fmt.Errorf("it is a %T, must be %s", v, want)
}

func noForm(any, *pycompat.Generation) (any, error) {
	return nil, fmt.Errorf("this library does not know its form; leave it out")
}

func boolean(v any, _ *pycompat.Generation) (any, error) {
	if _, isBool := v.(bool); !isBool {
		return nil, wrong(v, "a bool")
	}
	return v, nil
}

func anyInteger(v any, _ *pycompat.Generation) (any, error) {
	switch v.(type) {
	case int64, uint64:
		return v, nil
	}
	return nil, wrong(v, "an integer")
}

func integer(low, high int64) func(any, *pycompat.Generation) (any, error) {
	return func(v any, _ *pycompat.Generation) (any, error) {
		if n, isInt := v.(int64); !isInt || n < low || n > high {
			return nil, wrong(v, fmt.Sprintf("an integer in [%d, %d]", low, high))
		}
		return v, nil
	}
}

func truncation(v any, g *pycompat.Generation) (any, error) {
	if v == int64(0) {
		return nil, wrong(v, "-1, or an integer of at least 1")
	}
	return integer(-1, mostCount)(v, g)
}

// asFloat takes integers for floats.
func asFloat(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case int64:
		return float64(v), true
	case uint64:
		return float64(v), true
	}
	return 0, false
}

func number(low, high float64) func(any, *pycompat.Generation) (any, error) {
	return func(v any, _ *pycompat.Generation) (any, error) {
		f, isNumber := asFloat(v)
		if !isNumber || !(low <= f && f <= high) {
			return nil, wrong(v, fmt.Sprintf("a number in [%g, %g]", low, high))
		}
		return f, nil
	}
}

func above0(high float64) func(any, *pycompat.Generation) (any, error) {
	return func(v any, _ *pycompat.Generation) (any, error) {
		f, isNumber := asFloat(v)
		if !isNumber || !(0 < f && f <= high) {
			return nil, wrong(v, fmt.Sprintf("a number in (0, %g]", high))
		}
		return f, nil
	}
}

func temperature(v any, g *pycompat.Generation) (any, error) {
	high := g.Params.MaxTemperature
	if high == 0 {
		high = math.MaxFloat64
	}
	return number(0, high)(v, g)
}
