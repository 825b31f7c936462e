package blend

import (
	"cmp"
	"slices"
	"sort"
)

// A Range is the tokens of a prompt from Start up to, and without, End.
type Range struct {
	Start int `json:"start"`
	End   int `json:"end"`
}

// Greedy returns matches that do not overlap: always the one that starts first among those behind the last
// one, and of those the longest. It decides while a prompt is read from the left, as LMCache does.
func Greedy(matches []Match) []Match {
	sorted := slices.Clone(matches)
	slices.SortStableFunc(sorted, func(a, b Match) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.End, a.End))
	})
	var out []Match
	end := 0
	for _, m := range sorted {
		if m.Start >= end && m.End > m.Start {
			out = append(out, m)
			end = m.End
		}
	}
	return out
}

// Optimal returns matches that do not overlap and have the most tokens. Of equal ones it takes those with the
// fewest matches, since tokens that are computed together have seen each other, and then those that are
// further in front.
func Optimal(matches []Match) []Match {
	sorted := slices.Clone(matches)
	sorted = slices.DeleteFunc(sorted, func(m Match) bool { return m.Start < 0 || m.End <= m.Start })
	slices.SortStableFunc(sorted, func(a, b Match) int {
		return cmp.Or(cmp.Compare(a.End, b.End), cmp.Compare(b.Start, a.Start))
	})
	// best[i] is what the first i of the sorted matches can cover.
	type cover struct {
		tokens, matches int
		taken           int // the last match, from 1 on, or 0
		rest            int
	}
	best := make([]cover, len(sorted)+1)
	for i, m := range sorted {
		rest := sort.Search(i, func(j int) bool { return sorted[j].End > m.Start })
		with := cover{best[rest].tokens + m.End - m.Start, best[rest].matches + 1, i + 1, rest}
		best[i+1] = best[i]
		if with.tokens > best[i].tokens || with.tokens == best[i].tokens && with.matches < best[i].matches {
			best[i+1] = with
		}
	}
	var out []Match
	for at := best[len(sorted)]; at.taken > 0; at = best[at.rest] {
		out = append(out, sorted[at.taken-1])
	}
	slices.Reverse(out)
	return out
}

// Gaps returns what matches that do not overlap leave of a prompt.
func Gaps(cover []Match, tokens int) []Range {
	var out []Range
	at := 0
	for _, m := range cover {
		if m.Start > at {
			out = append(out, Range{at, m.Start})
		}
		at = m.End
	}
	if at < tokens {
		out = append(out, Range{at, tokens})
	}
	return out
}
