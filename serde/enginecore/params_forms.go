package enginecore

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
)

func text(v any, _ *pycompat.Generation) (any, error) {
	if _, isText := v.(string); !isText {
		return nil, wrong(v, "a string")
	}
	return v, nil
}

// texts takes a list of strings that are not empty.
func texts(v any, _ *pycompat.Generation) (any, error) {
	l, isList := v.([]any)
	if !isList {
		return nil, wrong(v, "a list of strings")
	}
	for i, x := range l {
		if s, isText := x.(string); !isText || s == "" {
			return nil, fmt.Errorf("element %d: %w", i, wrong(x, "a string that is not empty"))
		}
	}
	return v, nil
}

func textOrTexts(v any, g *pycompat.Generation) (any, error) {
	if s, isText := v.(string); isText && s != "" {
		return v, nil
	}
	return texts(v, g)
}

func tokenIDs(v any, g *pycompat.Generation) (any, error) {
	l, isList := v.([]any)
	if !isList {
		return nil, wrong(v, "a list of token ids")
	}
	for i, x := range l {
		if _, err := integer(0, mostTokenID)(x, g); err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
	}
	return v, nil
}

func someTokenIDs(v any, g *pycompat.Generation) (any, error) {
	if len(list(v)) == 0 {
		return nil, wrong(v, "a list of at least one token id")
	}
	return tokenIDs(v, g)
}

func scoredIDs(v any, g *pycompat.Generation) (any, error) {
	if n := len(list(v)); n > mostScoredIDs {
		return nil, fmt.Errorf("it has %d token ids, must have at most %d", n, mostScoredIDs)
	}
	return tokenIDs(v, g)
}

func listsOfTokenIDs(v any, g *pycompat.Generation) (any, error) {
	l, isList := v.([]any)
	if !isList {
		return nil, wrong(v, "a list of lists of token ids")
	}
	for i, x := range l {
		if _, err := someTokenIDs(x, g); err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
	}
	return v, nil
}

func anyMap(v any, _ *pycompat.Generation) (any, error) {
	if _, isMap := v.(map[string]any); !isMap {
		return nil, wrong(v, "a map with strings for keys")
	}
	return v, nil
}

func poolingTask(v any, g *pycompat.Generation) (any, error) {
	if s, isText := v.(string); !isText || s == "" || !slices.Contains(g.Params.PoolingTasks, s) {
		return nil, wrong(v, "one of: "+strings.Join(g.Params.PoolingTasks, ", "))
	}
	return v, nil
}

// scores takes prompt_logprob_token_ids: token ids, or -1 for none.
func scores(v any, g *pycompat.Generation) (any, error) {
	if !g.Params.ScoreArray {
		return tokenIDs(v, g)
	}
	a, isArray := v.(*serde.NDArray)
	if !isArray {
		return nil, wrong(v, "a *serde.NDArray of rows of token ids")
	}
	if len(a.Shape) != 2 || a.Shape[0] < 1 || a.Shape[1] < 1 || len(a.DType) < 2 ||
		!strings.ContainsRune("iu", rune(a.DType[1])) {
		return nil, fmt.Errorf("it is an array of %.16q with the shape %v, must be one of integers with rows and columns", a.DType, a.Shape)
	}
	if n, err := a.NBytes(); err != nil || n != len(a.Data) {
		return nil, fmt.Errorf("it is an array of %.16q with the shape %v and %d bytes, which don't go together",
			a.DType, a.Shape, len(a.Data))
	}
	return v, nil
}

// logitBias takes a map from token ids, also in decimal, to numbers.
func logitBias(v any, _ *pycompat.Generation) (any, error) {
	in := &serde.Map{}
	switch v := v.(type) {
	case *serde.Map:
		in = v
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			id, err := strconv.ParseUint(k, 10, 31)
			if err != nil {
				return nil, fmt.Errorf("the key %.64q is no token id", k)
			}
			in.Keys, in.Values = append(in.Keys, int64(id)), append(in.Values, v[k])
		}
	default:
		return nil, wrong(v, "a map from token ids to numbers")
	}
	out := &serde.Map{Keys: in.Keys}
	for i, k := range in.Keys {
		if id, isInt := k.(int64); !isInt || id < 0 || id > mostTokenID {
			return nil, fmt.Errorf("a key: %w", wrong(k, "a token id"))
		}
		f, isNumber := asFloat(in.Values[i])
		if !isNumber || math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("the bias of %v: %w", k, wrong(in.Values[i], "a finite number"))
		}
		out.Values = append(out.Values, f)
	}
	return out, nil
}

// Fields of StructuredOutputsParams in the order of Python. disable_fallback is
// one until 0.17.1, and ignored since.
var structuredTable = []struct {
	name string
	param
	constraint bool
}{
	{"json", param{true, textOrMap}, true},
	{"regex", param{true, text}, true},
	{"choice", param{true, choice}, true},
	{"grammar", param{true, someText}, true},
	{"json_object", param{true, onlyTrue}, true},
	{"disable_fallback", param{form: boolean}, false},
	{"disable_any_whitespace", param{form: boolean}, false},
	{"disable_additional_properties", param{form: boolean}, false},
	{"whitespace_pattern", param{true, text}, false},
	{"structural_tag", param{true, someText}, true},
	{"_backend", param{form: backend}, false},
	{"_backend_was_auto", param{form: boolean}, false},
}

func someText(v any, _ *pycompat.Generation) (any, error) {
	if s, isText := v.(string); !isText || strings.TrimSpace(s) == "" {
		return nil, wrong(v, "a string that is not blank")
	}
	return v, nil
}

func textOrMap(v any, g *pycompat.Generation) (any, error) {
	if _, isMap := v.(map[string]any); isMap {
		return v, nil
	}
	return someText(v, g)
}

func choice(v any, g *pycompat.Generation) (any, error) {
	if len(list(v)) == 0 {
		return nil, wrong(v, "a list of at least one string")
	}
	return texts(v, g)
}

func onlyTrue(v any, _ *pycompat.Generation) (any, error) {
	if v != true {
		return nil, wrong(v, "true if given")
	}
	return v, nil
}

func backend(v any, _ *pycompat.Generation) (any, error) {
	switch v {
	case "xgrammar", "guidance", "outlines", "lm-format-enforcer":
		return v, nil
	}
	return nil, wrong(v, "xgrammar, guidance, outlines or lm-format-enforcer")
}

func structuredOutputs(v any, g *pycompat.Generation) (any, error) {
	in, isMap := v.(map[string]any)
	if !isMap {
		return nil, wrong(v, "a map")
	}
	out := &serde.Map{}
	constraints := 0
	for _, f := range structuredTable {
		v, given := in[f.name]
		if !given {
			continue
		}
		w, err := f.check(f.name, v, g)
		if err != nil {
			return nil, err
		}
		if f.constraint && w != nil {
			constraints++
		}
		out.Keys, out.Values = append(out.Keys, f.name), append(out.Values, w)
	}
	switch {
	case len(out.Keys) < len(in):
		return nil, errors.New("it has a name that structured outputs don't")
	case constraints != 1:
		return nil, fmt.Errorf("it has %d constraints, must have one of json, regex, choice, grammar, json_object and structural_tag", constraints)
	case in["_backend"] == nil:
		return nil, errors.New("it has no _backend; name the one that the engine is configured with, or xgrammar for auto")
	}
	return out, nil
}

var repetitionFields = []string{"max_pattern_size", "min_pattern_size", "min_count"}

func repetitionDetection(v any, g *pycompat.Generation) (any, error) {
	in, isMap := v.(map[string]any)
	if !isMap {
		return nil, wrong(v, "a map of max_pattern_size, min_pattern_size and min_count")
	}
	out := &serde.Map{}
	n := map[string]int64{}
	for _, name := range repetitionFields {
		v, given := in[name]
		if !given {
			continue
		}
		if _, err := integer(0, mostCount)(v, g); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		n[name] = v.(int64)
		out.Keys, out.Values = append(out.Keys, name), append(out.Values, v)
	}
	switch {
	case len(out.Keys) < len(in):
		return nil, errors.New("it has a name other than max_pattern_size, min_pattern_size and min_count")
	case n["min_pattern_size"] > n["max_pattern_size"]:
		return nil, errors.New("its min_pattern_size is more than its max_pattern_size")
	case n["max_pattern_size"] > 0 && n["min_count"] < fewestPatterns:
		return nil, fmt.Errorf("its min_count is %d, must be at least %d", n["min_count"], fewestPatterns)
	}
	return out, nil
}
