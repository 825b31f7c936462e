//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
)

// loadAverage returns that of the last minute.
func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(b), " ")
	return first
}

// write writes the table: ours, and how many times that the others take.
func (r *results) write(w io.Writer, b *bed) {
	fmt.Fprintf(w, "# KV beside LMCache's own servers\n\nWritten by `go run ./daemon/internal/kvload/bench`. One Go client that speaks LMCache's protocol, %d processors which it shares with the server, "+
		"all servers in turns, %d rounds of %g s. Columns of LMCache's servers are ratios: their value divided by that of ringcache, so above 1 ringcache is faster or smaller, but for "+
		"calls for a second of CPU, which are ringcache's divided by theirs. The column bare gRPC is a server in Go that reads no message and answers with constant bytes: no server that uses gRPC's own package can be "+
		"faster than its ratio. Load average: %s when it began, %s at the end.\n\n",
		runtime.NumCPU(), b.o.rounds, b.o.seconds, b.load, loadAverage())
	const ours = "ringcache"
	header := "| | ringcache |"
	line := "| --- | ---: |"
	var others []string
	for _, k := range b.kinds {
		if k.name != ours {
			others = append(others, k.name)
			header += " " + k.name + " |"
			line += " ---: |"
		}
	}
	row := func(name, format string, value func(server string) float64, more bool) {
		own := value(ours)
		cells := []string{name, fmt.Sprintf(format, own)}
		for _, o := range others {
			v := value(o)
			switch {
			case v <= 0 || own <= 0:
				cells = append(cells, "")
			case more:
				cells = append(cells, fmt.Sprintf("%.1f", own/v))
			default:
				cells = append(cells, fmt.Sprintf("%.1f", v/own))
			}
		}
		fmt.Fprintln(w, "| "+strings.Join(cells, " | ")+" |")
	}
	fmt.Fprintln(w, header+"\n"+line)
	for _, sessions := range r.sessions {
		for _, m := range methods {
			for _, p := range []float64{0.5, 0.99} {
				key := fmt.Sprint(sessions, " ", m)
				row(fmt.Sprintf("%s, %d sessions, p%g, µs", m, sessions, 100*p), "%.0f",
					func(s string) float64 { return r.calls[s][key].at(p) }, false)
			}
		}
		row(fmt.Sprintf("calls for a second of CPU, %d sessions", sessions), "%.0f",
			func(s string) float64 { return r.perCore[s][sessions] }, true)
	}
	for _, n := range r.counts {
		for _, p := range []float64{0.5, 0.99} {
			row(fmt.Sprintf("look-up of 1,000 chunks among %d, p%g, µs", n, 100*p), "%.0f",
				func(s string) float64 { return r.lookups[s][n].at(p) }, false)
		}
		row(fmt.Sprintf("the server's own memory for a chunk, of %d, bytes", n), "%.0f",
			func(s string) float64 { return r.perChunk[s][n] }, false)
	}
	row("SIGKILL to the next hit, slowest of 3, s", "%.2f", func(s string) float64 { return r.kills[s].at(1) }, false)
	fmt.Fprintln(w, "\nA server that has lost what it had is given it again at once, so its next hit is that of an engine that computes in no time. Kept what they had:")
	for _, k := range b.kinds {
		if k.bare {
			continue
		}
		fmt.Fprintf(w, "- %s: %v\n", k.name, r.kept[k.name] && len(r.kills[k.name]) > 0)
	}
}
