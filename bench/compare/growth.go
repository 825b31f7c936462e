package main

import (
	"bytes"
	"fmt"
)

// growth is a goal about the rows of one job that differ in the number of objects or goroutines: how many
// times as long as with the fewest it takes with the most. With beyond, the time that is added counts in
// times of that peer.
type growth struct {
	job    string
	beyond string
	factor float64 // at most
}

var growths = []growth{
	{"live-put", "", 2},
	{"live-hit", "limit: a map", 3},
	{"live-refused", "", 2},
	{"live-stats", "", 2},
	{"goroutines", "", 1},
	{"goroutines-hit", "", 1},
}

// measured is one goal as the run met it.
type measured struct {
	c             Case
	first, second float64
}

// of returns the factors of a record: of the row with the most beside that with the fewest, for each size.
func (g growth) of(r *Record) (all []measured) {
	for _, most := range r.Results {
		if most.Job != g.job || most.Peer != oursPool || !ends(r, most, 1) {
			continue
		}
		for _, fewest := range r.Results {
			if fewest.Job != g.job || fewest.Peer != oursPool || fewest.Size != most.Size ||
				fewest.Case == most.Case || !ends(r, fewest, -1) {
				continue
			}
			m1, m2 := figures(&most, false)
			f1, f2 := figures(&fewest, false)
			x := measured{most.Case, m1 / f1, m2 / f2}
			if g.beyond != "" {
				unit, ok := r.find(most.Case, g.beyond)
				if !ok {
					continue
				}
				u1, u2 := figures(unit, false)
				x.first, x.second = (m1-f1)/u1, (m2-f2)/u2
			}
			all = append(all, x)
		}
	}
	return all
}

// ends reports whether no row of the same job, peer and size has more (sign 1) or fewer (-1) objects or
// goroutines.
func ends(r *Record, x Result, sign int) bool {
	for _, y := range r.Results {
		if y.Job == x.Job && y.Peer == x.Peer && y.Size == x.Size &&
			sign*(y.Live-x.Live+y.Goroutines-x.Goroutines) > 0 {
			return false
		}
	}
	return true
}

func writeGrowths(b *bytes.Buffer, r *Record) {
	written := false
	for _, g := range growths {
		for _, x := range g.of(r) {
			if !written {
				fmt.Fprint(b, "\n## Growth\n\nOurs with the most objects or goroutines, beside the fewest.\n\n"+
					"| job | most | factor | goal | least | median |\n| --- | --- | --- | ---: | ---: | ---: |\n")
				written = true
			}
			what := "most / fewest"
			if g.beyond != "" {
				what = "(most - fewest) / " + g.beyond
			}
			limit := goal{factor: g.factor, most: true}
			fmt.Fprintf(b, "| %s | %s | %s | ≤ %g | %s | %s |\n", g.job, caseText(x.c), what, g.factor,
				limit.verdict(x.first), limit.verdict(x.second))
		}
	}
}
