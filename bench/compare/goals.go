package main

import (
	"bytes"
	"fmt"
)

// goal is a requirement on the library for two columns of one row: that the slower takes at least so many
// times as long as the faster, or with most that it takes at most so many times as long.
type goal struct {
	job            string
	size           int // 0: every size
	ring           string
	faster, slower string
	factor         float64
	most           bool
}

var goals = []goal{
	{"new", 4 * kib, "warm", oursPool, "vLLM", 20, false},
	{"new", 64 * kib, "warm", oursPool, "vLLM", 14, false},
	{"new", mib, "warm", oursPool, "vLLM", 3, false},
	{"new", 24 * mib, "warm", limitCopy, oursPool, 1.05, true},
	{"repeat", 0, "warm", oursPool, "vLLM", 35, false},
	{"worker", mib, "warm", oursFirst, "vLLM", 25, false},
	{"worker", mib, "warm", oursSeen, "vLLM", 150, false},
	{"worker", mib, "warm", oursPython, "vLLM", 3, false},
	{"worker", 24 * mib, "warm", oursPython, "vLLM", 50, false},
	{"reserve", 0, "warm", "limit: encode, write and sign", oursPool, 2, true},
	{"transaction", 0, "warm", oursPool, "mmcache", 3, true},
	{"hash", 64 * kib, "", "mmhash", "vLLM", 1, false},
	{"hash", 3 * mib, "", "mmhash", "vLLM", 1.8, false},
	{"prefault", 0, "", "ringcache", "a goroutine that writes to every page", 1.8, false},
	{"prefault", 0, "", "ringcache", "one thread that populates", 1.4, false},
	{"encoder-save", 0, "", oursMemory, "vLLM, files", 3, false},
	{"encoder-save", 0, "", oursMemory, "vLLM, CPU connector", 1, false},
	{"encoder-save", 0, "", oursDisk, "vLLM, files", 1, false},
	{"encoder-load", 0, "", limitCopy, oursMemory, 1.2, true},
	{"encoder-load", 0, "", oursMemory, "vLLM, files", 1, false},
	{"encoder-load", 0, "", oursMemory, "vLLM, CPU connector", 1, false},
	{"delivery", 0, "warm", oursPython, "vLLM", 2, false},
}

// writeGoals writes which goals the run met, by both figures of each.
func writeGoals(b *bytes.Buffer, r *Record) {
	written := false
	for _, g := range goals {
		for _, x := range r.Results {
			if x.Job != g.job || x.Peer != g.faster || x.Ring != g.ring || g.size != 0 && x.Size != g.size {
				continue
			}
			slower, ok := r.find(x.Case, g.slower)
			if !ok {
				continue
			}
			if !written {
				fmt.Fprint(b, "\n## Goals\n\n| job | case | factor | goal | first figure | second figure |\n| --- | --- | --- | ---: | ---: | ---: |\n")
				written = true
			}
			f1, f2 := figures(&x, single(g.job))
			s1, s2 := figures(slower, single(g.job))
			sign := "≥"
			if g.most {
				sign = "≤"
			}
			fmt.Fprintf(b, "| %s | %s | %s / %s | %s %g | %s | %s |\n", g.job, caseText(x.Case), g.slower, g.faster,
				sign, g.factor, g.verdict(s1/f1), g.verdict(s2/f2))
		}
	}
}

func (g goal) verdict(factor float64) string {
	if (factor < g.factor) != g.most {
		return fmt.Sprintf("%.3g, missed", factor)
	}
	return fmt.Sprintf("%.3g", factor)
}

// single reports whether the samples of a job are of single operations.
func single(job string) bool {
	for _, e := range experiments {
		if e.name == job {
			return e.each
		}
	}
	return false
}
