package main

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
)

// progress is a bar on a terminal, and nothing elsewhere.
type progress struct {
	total    int
	terminal bool
}

func newProgress(total int) progress {
	st, err := os.Stderr.Stat()
	return progress{total, err == nil && st.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"}
}

func (p progress) set(n int) {
	if !p.terminal {
		return
	}
	const width = 40
	full := width * n / p.total
	fmt.Fprintf(os.Stderr, "\r  [%s%s] %d/%d requests", strings.Repeat("#", full), strings.Repeat(".", width-full), n, p.total)
}

func (p progress) done() {
	if p.terminal {
		fmt.Fprint(os.Stderr, "\r\033[K")
	}
}

func (s stats) print(o options, images int) {
	reader := map[string]string{"ringcache": "pure-Python", "vllm": "real vLLM"}[o.Peer]
	fmt.Printf("%d requests of %d images, %d different images; %d %s workers, wire of vLLM %s\n",
		s.requests, o.Images, images, o.Workers, reader, o.Engine)
	seconds := s.elapsed.Seconds()
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "objects put\tMB put\thits\thit rate\tinline\tevictions\tverified\tMB verified\tGB/s verified\tseconds\t")
	fmt.Fprintf(t, "%d\t%.1f\t%d\t%.0f%%\t%d\t%d\t%d\t%.1f\t%.2f\t%.1f\t\n",
		s.objects, float64(s.put)/1e6, s.hits, 100*float64(s.hits)/float64(max(1, s.sent)), s.inline, s.evicted,
		s.verified, float64(s.verifiedBytes)/1e6, float64(s.verifiedBytes)/1e9/seconds, seconds)
	_ = t.Flush()
	if len(s.problems) == 0 {
		fmt.Println("every worker found every byte as it was written")
	}
}
