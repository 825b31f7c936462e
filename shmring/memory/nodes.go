package memory

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// maxNode is the largest number of a NUMA node, as Linux is usually built.
const maxNode = 1023

// nodesWithMemory returns the numbers of the NUMA nodes with memory, in order.
func nodesWithMemory(root fs.FS) ([]int, error) {
	text, err := fs.ReadFile(root, "sys/devices/system/node/has_memory")
	if err != nil {
		return nil, err
	}
	return parseList(strings.TrimSpace(string(text)))
}

// parseList reads a list such as 0-3,7.
func parseList(s string) ([]int, error) {
	var out []int
	for _, part := range strings.Split(s, ",") {
		a, b, isRange := strings.Cut(part, "-")
		if !isRange {
			b = a
		}
		lo, err1 := strconv.Atoi(a)
		hi, err2 := strconv.Atoi(b)
		if err1 != nil || err2 != nil || lo < 0 || hi < lo || hi > maxNode {
			return nil, fmt.Errorf("%q is no list of nodes", s)
		}
		for n := lo; n <= hi; n++ {
			out = append(out, n)
		}
	}
	return out, nil
}
