package main

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// growth samples resources that must not grow, in the supervisor and in children that are not killed.
type growth struct {
	prefix string // of the paths of segments

	mu       sync.Mutex
	children map[*process]string // that are sampled, with the key of their series
	series   map[string]map[string][]int64
}

// measure is what is sampled.
type measure struct {
	name  string
	unit  int64 // that the summary divides by
	label string
	// slack is what the value may grow by, besides a fifth.
	slack int64
}

var measures = []measure{
	{"memory", 1 << 20, " MiB", 32 << 20}, // not shared: the heap, stacks, tables
	{"descriptors", 1, "", 8},
	{"goroutines", 1, "", 8},
	{"mappings", 1, "", 32},
	{"files", 1, "", 12},
}

func newGrowth(prefix string) *growth {
	return &growth{prefix: prefix, children: map[*process]string{}, series: map[string]map[string][]int64{}}
}

// watch begins to sample a child.
func (g *growth) watch(c *process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.children[c] = fmt.Sprintf("%s (pid %d)", c.name, c.cmd.Process.Pid)
}

// unwatch ends that. The samples stay, and are checked.
func (g *growth) unwatch(c *process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.children, c)
}

func (g *growth) add(of, what string, n int64) {
	if g.series[of] == nil {
		g.series[of] = map[string][]int64{}
	}
	g.series[of][what] = append(g.series[of][what], n)
}

// goroutines adds the number that a child reported of itself.
func (g *growth) goroutines(c *process, n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if key, ok := g.children[c]; ok {
		g.add(key, "goroutines", int64(n))
	}
}

func (g *growth) sample() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.add("supervisor", "goroutines", int64(runtime.NumGoroutine()))
	g.add("supervisor", "files", int64(len(leftFiles(g.prefix))))
	g.process("supervisor", os.Getpid())
	for c, key := range g.children {
		g.process(key, c.cmd.Process.Pid)
	}
}

// process samples what the kernel reports. A process that has just ended is left out.
func (g *growth) process(key string, pid int) {
	dir := "/proc/" + strconv.Itoa(pid)
	if n, ok := field(dir+"/status", "RssAnon:"); ok {
		g.add(key, "memory", n<<10)
	}
	if fds, err := os.ReadDir(dir + "/fd"); err == nil {
		g.add(key, "descriptors", int64(len(fds)))
	}
	if text, err := os.ReadFile(dir + "/maps"); err == nil && len(text) > 0 {
		g.add(key, "mappings", int64(strings.Count(string(text), "\n")))
	}
}

// field returns the number behind a name in a file of /proc.
func field(path, name string) (int64, bool) {
	f, err := os.Open(path)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), name); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// compare returns the largest value of the warm-up, which is the first two fifths, and the
// smallest of the last fifth. With a leak the second is larger; a single peak changes neither by
// much.
func compare(samples []int64) (before, after int64, ok bool) {
	n := len(samples)
	if n < 10 {
		return 0, 0, false
	}
	return slices.Max(samples[:2*n/5]), slices.Min(samples[n-n/5:]), true
}

// check returns an error for each resource that has grown.
func (g *growth) check() (failed []error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(g.series)) {
		for _, m := range measures {
			before, after, ok := compare(g.series[key][m.name])
			if ok && after > before+before/5+m.slack {
				failed = append(failed, fmt.Errorf("leak: %s of the %s grew from %d to %d", m.name, key, before, after))
			}
		}
	}
	return failed
}

// line is the second part of the summary: the largest growth of each measure.
func (g *growth) line() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var parts []string
	for _, m := range measures {
		part := "?"
		var most int64
		for _, key := range slices.Sorted(maps.Keys(g.series)) {
			before, after, ok := compare(g.series[key][m.name])
			if ok && (part == "?" || after-before > most) {
				most = after - before
				part = fmt.Sprintf("%d to %d%s", before/m.unit, after/m.unit, m.label)
			}
		}
		parts = append(parts, m.name+" "+part)
	}
	return "largest growth: " + strings.Join(parts, ", ")
}
