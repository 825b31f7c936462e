package memory

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// mapping is what the kernel reports about a range of this process's memory, in bytes.
type mapping struct {
	Size   int64 // that are mapped at all
	Mapped int64 // that have a page behind them, so that touching them is no fault
	Huge   int64 // of shared memory that are mapped by huge pages
	Locked int64 // that can't be swapped out
	NoDump int64 // that core dumps leave out
}

// parseSmaps sums /proc/self/smaps over the areas in [lo, hi).
func parseSmaps(r io.Reader, lo, hi uint64) (mapping, error) {
	var m mapping
	var part int64 // bytes of the current area that are in the range
	s := bufio.NewScanner(r)
	for s.Scan() {
		key, value, _ := strings.Cut(s.Text(), " ")
		if !strings.HasSuffix(key, ":") {
			a, b, ok := addresses(key)
			if !ok {
				return m, fmt.Errorf("smaps: no address range in %q", s.Text())
			}
			if a >= hi {
				break
			}
			part = 0
			if a < hi && b > lo {
				part = int64(min(b, hi) - max(a, lo))
				m.Size += part
			}
			continue
		}
		if part == 0 {
			continue
		}
		switch key {
		case "Rss:":
			m.Mapped += min(part, kib(value))
		case "ShmemPmdMapped:":
			m.Huge += min(part, kib(value))
		case "VmFlags:":
			for _, f := range strings.Fields(value) {
				switch f {
				case "lo":
					m.Locked += part
				case "dd":
					m.NoDump += part
				}
			}
		}
	}
	return m, s.Err()
}

func addresses(s string) (a, b uint64, ok bool) {
	x, y, ok := strings.Cut(s, "-")
	if !ok {
		return 0, 0, false
	}
	a, err1 := strconv.ParseUint(x, 16, 64)
	b, err2 := strconv.ParseUint(y, 16, 64)
	return a, b, err1 == nil && err2 == nil && a < b
}

// kib reads "   12 kB" as bytes, 0 if it is something else.
func kib(s string) int64 {
	n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(s), " kB"), 10, 54)
	if err != nil {
		return 0
	}
	return max(0, n) << 10
}

// parseNumaMaps sums the bytes on each node over the areas of
// /proc/self/numa_maps that begin in [lo, hi).
func parseNumaMaps(r io.Reader, lo, hi uint64) (map[int]int64, error) {
	out := map[int]int64{}
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20) // a line contains a path
	for s.Scan() {
		f := strings.Fields(s.Text())
		if len(f) == 0 {
			continue
		}
		at, err := strconv.ParseUint(f[0], 16, 64)
		if err != nil {
			return nil, fmt.Errorf("numa_maps: no address in %q", s.Text())
		}
		if at < lo || at >= hi {
			continue
		}
		pages, size := map[int]int64{}, int64(0)
		for _, f := range f[1:] {
			key, value, _ := strings.Cut(f, "=")
			n, err := strconv.ParseInt(value, 10, 40)
			if err != nil || n < 0 {
				continue
			}
			if key == "kernelpagesize_kB" {
				size = n << 10
			}
			if node, err := strconv.ParseUint(strings.TrimPrefix(key, "N"), 10, 16); err == nil && key[0] == 'N' {
				pages[int(node)] = n
			}
		}
		for node, n := range pages {
			out[node] += n * size
		}
	}
	return out, s.Err()
}
