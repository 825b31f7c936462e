package memory

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Report describes the memory of a segment, and what Prepare obtained. A reason is empty if
// nothing was requested, or if the request was met.
type Report struct {
	Path string
	Size int64 // bytes of the segment

	Allocated       bool // every byte of the file has memory behind it
	AllocatedReason string
	Resident        int64 // bytes in memory: used or prefaulted by any process, and not swapped out
	Mapped          int64 // bytes that this process can touch without a fault

	Prefault struct {
		Asked, Obtained bool
		Reason          string
	}
	HugePages struct {
		Asked    bool
		Obtained int64 // bytes that this process maps by huge pages
		Possible int64 // bytes of the whole huge pages that fit into the mapping
		Reason   string
	}
	NUMA struct {
		Asked      string // Options.NUMA
		AskedNodes []int
		Obtained   bool
		Nodes      map[int]int64 // bytes mapped from each node, nil if unknown
		Reason     string
	}
	Lock struct {
		Asked    bool
		Obtained int64 // bytes
		Reason   string
	}

	DontDump       bool // core dumps of this process don't contain the segment
	DontDumpReason string
}

// Missing returns a line with the reason for everything that was requested, or is always
// wanted, and was not obtained.
func (r Report) Missing() []string {
	var out []string
	for _, m := range []struct{ what, reason string }{
		{"allocation", r.AllocatedReason},
		{"prefault", r.Prefault.Reason},
		{"huge pages", r.HugePages.Reason},
		{"NUMA", r.NUMA.Reason},
		{"lock", r.Lock.Reason},
		{"leaving it out of core dumps", r.DontDumpReason},
	} {
		if m.reason != "" {
			out = append(out, m.what+": "+m.reason)
		}
	}
	return out
}

// String returns the report as lines for an operator.
func (r Report) String() string {
	var b strings.Builder
	line := func(what, state, reason string) {
		if reason != "" {
			state += ": " + reason
		}
		fmt.Fprintf(&b, "\n  %-11s %s", what, state)
	}
	asked := func(was bool, state string) string {
		if !was {
			return "not asked for, " + state
		}
		return state
	}
	of := func(n, total int64) string { return fmt.Sprintf("%d of %d bytes", n, total) }

	fmt.Fprintf(&b, "memory of %s, %d bytes:", r.Path, r.Size)
	line("allocated", yes(r.Allocated), r.AllocatedReason)
	line("resident", of(r.Resident, r.Size), "")
	line("prefault", asked(r.Prefault.Asked, of(r.Mapped, r.Size)+" mapped"), r.Prefault.Reason)
	line("huge pages", asked(r.HugePages.Asked, of(r.HugePages.Obtained, r.Size)), r.HugePages.Reason)
	var nodes []string
	for _, n := range slices.Sorted(maps.Keys(r.NUMA.Nodes)) {
		nodes = append(nodes, fmt.Sprintf("node %d has %d bytes", n, r.NUMA.Nodes[n]))
	}
	if nodes == nil {
		nodes = []string{"no node known"}
	}
	placed := strings.Join(nodes, ", ")
	if r.NUMA.Asked != "" {
		placed = fmt.Sprintf("%s to %v %s, %s", r.NUMA.Asked, r.NUMA.AskedNodes, obtained(r.NUMA.Obtained), placed)
	}
	line("NUMA", asked(r.NUMA.Asked != "", placed), r.NUMA.Reason)
	line("locked", asked(r.Lock.Asked, of(r.Lock.Obtained, r.Size)), r.Lock.Reason)
	state := "left out"
	if !r.DontDump {
		state = "not left out"
	}
	line("core dumps", state, r.DontDumpReason)
	return b.String()
}

func yes(ok bool) string {
	if ok {
		return "yes"
	}
	return "no"
}

func obtained(ok bool) string {
	if ok {
		return "obtained"
	}
	return "not obtained"
}
