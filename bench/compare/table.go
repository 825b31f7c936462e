package main

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ringcache/ringcache/bench/internal/stats"
)

// table returns the report in Markdown.
func table(r *Record) []byte {
	var b bytes.Buffer
	m := r.Machine
	fmt.Fprintf(&b, "# Results\n\nWritten by `make bench`; [performance.md](../../docs/performance.md) describes the jobs.\n\n")
	if r.Options.Smoke {
		fmt.Fprint(&b, "**A smoke run: few rounds and small sizes, to see that everything runs.**\n\n")
	}
	if m.busy() {
		fmt.Fprint(&b, "**Other programs were running: an example of the tables, not a result.**\n\n")
	}
	fmt.Fprintf(&b, "%s, %d CPUs, largest cache %s, Linux %s. Load averages %s before, %s after.", m.CPU, m.CPUs,
		m.Cache, m.Kernel, m.LoadBefore, m.LoadAfter)
	for _, name := range slices.Sorted(maps.Keys(m.Versions)) {
		fmt.Fprintf(&b, " %s %s.", name, m.Versions[name])
	}
	fmt.Fprintf(&b, " %s, %.0f s, %d rounds.\n\nMicroseconds: least / median, or p50 / p99 where so stated. Factors are vLLM's time by ours, of the least and of the median"+
		" (p50 and p99).\n", r.Began.Format("2006-01-02 15:04 MST"), r.Seconds, r.Options.Rounds)
	for _, e := range experiments {
		writeExperiment(&b, r, e)
	}
	writeGoals(&b, r)
	writeGrowths(&b, r)
	for i, l := range r.LeftOut {
		if i == 0 {
			fmt.Fprint(&b, "\n## Left out\n\n")
		}
		fmt.Fprintf(&b, "- %s: %s\n", l.What, l.Reason)
	}
	return b.Bytes()
}

func writeExperiment(b *bytes.Buffer, r *Record, e experiment) {
	var cases []Case
	var peers []string
	for _, x := range r.Results {
		if x.Job != e.name {
			continue
		}
		if !slices.Contains(cases, x.Case) {
			cases = append(cases, x.Case)
		}
		if !slices.Contains(peers, x.Peer) {
			peers = append(peers, x.Peer)
		}
	}
	if len(cases) == 0 {
		return
	}
	figures := "least / median"
	if e.each {
		figures = "p50 / p99"
	}
	if e.rate {
		figures += ", and GB/s at the first"
	}
	fmt.Fprintf(b, "\n## %s\n\n%s %s.\n\n| case |", e.name, e.about, strings.ToUpper(figures[:1])+figures[1:])
	var rivals []string // ours that are compared with vLLM
	for _, p := range peers {
		fmt.Fprintf(b, " %s |", p)
		if slices.Contains(peers, "vLLM") && isOurs(p) {
			rivals = append(rivals, p)
		}
	}
	for _, p := range rivals {
		fmt.Fprintf(b, " vLLM / %s |", p)
	}
	fmt.Fprintf(b, "\n| --- |%s\n", strings.Repeat(" ---: |", len(peers)+len(rivals)))
	for _, c := range cases {
		fmt.Fprintf(b, "| %s |", caseText(c))
		for _, p := range peers {
			fmt.Fprintf(b, " %s |", timesText(r, c, p, e))
		}
		for _, p := range rivals {
			fmt.Fprintf(b, " %s |", factorsText(r, c, "vLLM", p, e.each))
		}
		fmt.Fprintln(b)
	}
	writeNotes(b, r, e.name)
}

// writeNotes writes the figures besides times.
func writeNotes(b *bytes.Buffer, r *Record, job string) {
	before := "\n"
	for _, x := range r.Results {
		for _, name := range slices.Sorted(maps.Keys(x.Notes)) {
			if x.Job == job {
				fmt.Fprintf(b, before+"- %s, %s: %s %.0f\n", caseText(x.Case), x.Peer,
					strings.ReplaceAll(name, "_", " "), x.Notes[name])
				before = ""
			}
		}
	}
}

func isOurs(peer string) bool {
	return strings.HasPrefix(peer, "ringcache") || strings.HasPrefix(peer, "mm")
}

// figures returns the two figures of a result: p50 and p99, or the least and the median, in nanoseconds.
func figures(x *Result, each bool) (first, second float64) {
	if each {
		return x.quantile(0.5), x.quantile(0.99)
	}
	s := x.Summary()
	return s.Min, s.Median
}

func timesText(r *Record, c Case, peer string, e experiment) string {
	x, ok := r.find(c, peer)
	if !ok {
		return "-"
	}
	first, second := figures(x, e.each)
	text := fmt.Sprintf("%.3g / %.3g", first/1e3, second/1e3)
	if e.rate {
		text += fmt.Sprintf(" (%.3g GB/s)", stats.Gigabytes(c.Size, first))
	}
	return text
}

func factorsText(r *Record, c Case, theirs, ours string, each bool) string {
	t, there := r.find(c, theirs)
	o, here := r.find(c, ours)
	if !there || !here {
		return "-"
	}
	t1, t2 := figures(t, each)
	o1, o2 := figures(o, each)
	return fmt.Sprintf("%.2g / %.2g", t1/o1, t2/o2)
}

// caseText names a case within its job.
func caseText(c Case) string {
	text := sizeText(float64(c.Size))
	if c.Ring != "" {
		text += fmt.Sprintf(", %s ring of %s", c.Ring, sizeText(float64(c.RingBytes)))
	}
	if c.Live > 0 {
		text += fmt.Sprintf(", %d live", c.Live)
	}
	if c.Goroutines > 0 {
		text += fmt.Sprintf(", goroutines: %d", c.Goroutines)
	}
	return text
}

func sizeText(bytes float64) string {
	switch {
	case bytes >= 1<<30:
		return fmt.Sprintf("%.3g GiB", bytes/(1<<30))
	case bytes >= mib:
		return fmt.Sprintf("%.3g MiB", bytes/mib)
	case bytes >= kib:
		return fmt.Sprintf("%.3g KiB", bytes/kib)
	}
	return fmt.Sprintf("%.0f B", bytes)
}
