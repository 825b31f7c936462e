package blend

import (
	"cmp"
	"math"
	"slices"

	"github.com/ringcache/ringcache/blend/rope"
)

// A Measure is what the deviation of a token is computed of.
type Measure int

// Measures.
const (
	Keys   Measure = iota // at their new positions, as in LMCache
	Values                // as in the code of the paper
)

// Deviation writes the deviation of each row to dst: the sum of the squares of the differences of all
// elements. fresh and old are rows of keys, or of values, of one layer, with so many elements of one type.
func Deviation(dst []float64, fresh, old []byte, width int, d rope.DType) error {
	size := width * d.Size()
	if size == 0 || len(fresh) != len(dst)*size || len(old) != len(fresh) {
		return invalid("%d and %d bytes for %d rows of %d elements of %s", len(fresh), len(old), len(dst), width, d)
	}
	a, b := make([]float32, width), make([]float32, width)
	for i := range dst {
		d.Decode(a, fresh[i*size:])
		d.Decode(b, old[i*size:])
		sum := 0.0
		for j, x := range a {
			e := float64(x) - float64(b[j])
			sum += float64(e * e) // rounded, so that every architecture has the same bits
		}
		dst[i] = sum
	}
	return nil
}

// A Selection says which tokens are computed in the layers behind a check.
type Selection struct {
	// Ratio is the part of the tokens of the prompt, 0 to 1. Tokens that are always computed count, and are
	// the first; if there are more of them, all are computed.
	Ratio float64
	// Beyond computes the ratio of the tokens that are not always computed, in addition to those that are:
	// the query does not take room from the documents, as in the code of the paper.
	Beyond bool
	// Threshold, if it is not 0, selects what deviates by more, up to Ratio if that is not 0.
	Threshold float64
}

// Validate reports what is wrong with a selection.
func (s Selection) Validate() error {
	if !(s.Ratio >= 0 && s.Ratio <= 1) || !(s.Threshold >= 0) {
		return invalid("a ratio of %v and a threshold of %v; a ratio is 0 to 1, and no threshold is negative",
			s.Ratio, s.Threshold)
	}
	return nil
}

// Select returns which rows are computed further, in their order. candidates are rows of a prompt of so many
// tokens, with their deviations; always reports which of them are selected whatever their deviation. Of equal
// deviations the row in front is selected. A deviation that is no number is the largest.
func (s Selection) Select(
	tokens int, candidates []int, deviations []float64, always func(row int) bool,
) ([]int, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if len(deviations) != len(candidates) || tokens < len(candidates) {
		return nil, invalid("%d deviations of %d rows among %d tokens", len(deviations), len(candidates), tokens)
	}
	var out, rest []int // rest has indices of candidates
	for i, row := range candidates {
		if always(row) {
			out = append(out, row)
		} else {
			rest = append(rest, i)
		}
	}
	count := int(float64(tokens)*s.Ratio) - len(out)
	if s.Beyond {
		count = int(float64(tokens-len(out)) * s.Ratio)
	}
	if s.Threshold > 0 {
		rest = slices.DeleteFunc(rest, func(i int) bool { return deviations[i] <= s.Threshold })
		if s.Ratio == 0 {
			count = len(rest)
		}
	}
	weight := func(i int) float64 {
		if math.IsNaN(deviations[i]) {
			return math.Inf(1)
		}
		return deviations[i]
	}
	slices.SortStableFunc(rest, func(a, b int) int { return cmp.Compare(weight(b), weight(a)) })
	for _, i := range rest[:min(max(count, 0), len(rest))] {
		out = append(out, candidates[i])
	}
	slices.Sort(out)
	return out, nil
}
