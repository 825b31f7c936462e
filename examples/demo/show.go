package main

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"
)

// pause is the time without a word, where there is no terminal; the first is shorter.
const pause = 10 * time.Second

// progress is a bar on a terminal, and a line now and then elsewhere.
type progress struct {
	total    int
	terminal bool
	next     time.Time // of a line
}

func newProgress(total int) *progress {
	return &progress{total, terminal(), time.Now().Add(time.Second)}
}

func terminal() bool {
	st, err := os.Stderr.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}

func (p *progress) set(n int) {
	if !p.terminal {
		if now := time.Now(); now.After(p.next) {
			p.next = now.Add(pause)
			fmt.Fprintf(os.Stderr, "  %d/%d requests\n", n, p.total)
		}
		return
	}
	const width = 40
	full := width * n / p.total
	fmt.Fprintf(os.Stderr, "\r  [%s%s] %d/%d requests", strings.Repeat("#", full), strings.Repeat(".", width-full), n, p.total)
}

func (p *progress) done() {
	if p.terminal {
		fmt.Fprint(os.Stderr, "\r\033[K")
	}
}

// waiting tells what takes longer than a second, until the function that it returns is called.
func waiting(what string) (done func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		began, next := time.Now(), time.Second
		for {
			select {
			case <-stop:
				return
			case <-time.After(next):
			}
			next = pause
			fmt.Fprintf(os.Stderr, "  %s: %.0f s\n", what, time.Since(began).Seconds())
		}
	}()
	return func() { close(stop); <-stopped }
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
