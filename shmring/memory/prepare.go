package shmring

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ringcache/ringcache/internal/memory"
	"github.com/ringcache/ringcache/internal/shmfile"
)

// SpaceError says how much memory a new segment needs, how much there is, which
// limit is in the way (the size of the mount, or the memory limit of the
// container) and which setting changes it. [ErrNoSpace] comes with it.
type SpaceError = shmfile.SpaceError

// The limits that a [SpaceError] can be about.
const (
	LimitMount  = shmfile.LimitMount
	LimitCgroup = shmfile.LimitCgroup
)

// ErrMemory says that something [MemoryOptions] asked for could not be had.
var ErrMemory = errors.New("shmring: memory is not as required")

// HugePages says whether a segment should be in huge pages.
type HugePages int

const (
	// HugePagesOff leaves it to the mount.
	HugePagesOff HugePages = iota
	// HugePagesAdvise asks for them, by MADV_HUGEPAGE and MADV_COLLAPSE.
	HugePagesAdvise
)

// NUMAPolicy says on which nodes a segment should be.
type NUMAPolicy int

const (
	// NUMADefault leaves it to the system: the node of the CPU that touches first.
	NUMADefault NUMAPolicy = iota
	// NUMABind allows only the given nodes.
	NUMABind
	// NUMAInterleave spreads the pages over the given nodes in turn.
	NUMAInterleave
)

func (p NUMAPolicy) String() string {
	switch p {
	case NUMADefault:
		return "default"
	case NUMABind:
		return "bind"
	case NUMAInterleave:
		return "interleave"
	}
	return fmt.Sprintf("NUMAPolicy(%d)", int(p))
}

// MemoryOptions say how the memory of a segment should be. HugePages, NUMA and
// Lock imply Prefault, since they are about pages that are mapped.
type MemoryOptions struct {
	// Prefault maps all pages, so that no first use is a page fault.
	Prefault bool
	// Workers that prefault, GOMAXPROCS if 0.
	Workers int
	// Progress, if not nil, is called while prefaulting with the bytes done so
	// far, ever more up to the total, by one goroutine at a time.
	Progress func(done, total int64)

	HugePages HugePages
	NUMA      NUMAPolicy
	// NUMANodes are the nodes of the policy. None are all nodes with memory to
	// NUMAInterleave.
	NUMANodes []int
	// Lock keeps the segment from being swapped out while it is mapped here.
	Lock bool
	// Require makes what could not be had an error. Otherwise it is in the
	// report only.
	Require bool
}

// Validate reports what is wrong with the options.
func (o MemoryOptions) Validate() error {
	switch {
	case o.Workers < 0:
		return fmt.Errorf("%w: %d workers", ErrInvalid, o.Workers)
	case o.HugePages < HugePagesOff || o.HugePages > HugePagesAdvise:
		return fmt.Errorf("%w: HugePages(%d)", ErrInvalid, int(o.HugePages))
	case o.NUMA < NUMADefault || o.NUMA > NUMAInterleave:
		return fmt.Errorf("%w: %v", ErrInvalid, o.NUMA)
	case o.NUMA == NUMADefault && len(o.NUMANodes) > 0:
		return fmt.Errorf("%w: NUMA nodes %v without a policy", ErrInvalid, o.NUMANodes)
	case o.NUMA == NUMABind && len(o.NUMANodes) == 0:
		return fmt.Errorf("%w: no NUMA node to bind to", ErrInvalid)
	}
	for _, n := range o.NUMANodes {
		if n < 0 || n > memory.MaxNode {
			return fmt.Errorf("%w: NUMA node %d is not in 0 to %d", ErrInvalid, n, memory.MaxNode)
		}
	}
	return nil
}

func (o MemoryOptions) prefault() bool {
	return o.Prefault || o.HugePages != HugePagesOff || o.NUMA != NUMADefault || o.Lock
}

// MemoryReport is what was really obtained. A Reason is empty if there is
// nothing to say: what was asked for is there, or nothing was asked for.
type MemoryReport struct {
	Path string
	Size int64 // bytes of the segment

	Allocated       bool // every byte of the file has memory behind it
	AllocatedReason string
	Resident        int64 // bytes in memory: used or prefaulted by someone, and not swapped out
	Mapped          int64 // bytes that this process can touch without a fault

	Prefault  PrefaultReport
	HugePages HugePageReport
	NUMA      NUMAReport
	Lock      LockReport

	DontDump       bool // core dumps of this process leave the segment out
	DontDumpReason string
}

// PrefaultReport is about MemoryOptions.Prefault.
type PrefaultReport struct {
	Asked, Obtained bool
	Reason          string
}

// HugePageReport is about MemoryOptions.HugePages.
type HugePageReport struct {
	Asked    bool
	Obtained int64 // bytes that this process has mapped by huge pages
	Possible int64 // bytes of the whole huge pages that the mapping has room for
	Reason   string
}

// NUMAReport is about MemoryOptions.NUMA.
type NUMAReport struct {
	Asked      NUMAPolicy
	AskedNodes []int
	Obtained   bool
	Nodes      map[int]int64 // bytes mapped from each node, nil if unknown
	Reason     string
}

// LockReport is about MemoryOptions.Lock.
type LockReport struct {
	Asked    bool
	Obtained int64 // bytes
	Reason   string
}

// Missing returns a line for everything that is not as it should be, with the
// reason.
func (r MemoryReport) Missing() []string {
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

// String returns some lines for an operator.
func (r MemoryReport) String() string {
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
	if r.NUMA.Asked != NUMADefault {
		placed = fmt.Sprintf("%v to %v %s, %s", r.NUMA.Asked, r.NUMA.AskedNodes, obtained(r.NUMA.Obtained), placed)
	}
	line("NUMA", asked(r.NUMA.Asked != NUMADefault, placed), r.NUMA.Reason)
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

// Prepare gets the memory of the segment as the options have it and reports what
// it is really like. It changes no byte of the segment, and others may use it
// meanwhile. With the zero options it only looks.
//
// What could not be had is in the report with a reason, and an error that wraps
// [ErrMemory] only if it is required. Other errors are [ErrInvalid],
// [ErrClosed], the context's, and that a page could not be had at all. The
// report is as far as it goes then.
func (s *Segment) Prepare(ctx context.Context, o MemoryOptions) (MemoryReport, error) {
	if err := o.Validate(); err != nil {
		return MemoryReport{}, err
	}
	if s.path == "" {
		return MemoryReport{}, fmt.Errorf("%w: the segment is private memory", ErrInvalid)
	}
	if err := s.Hold(); err != nil {
		return MemoryReport{}, err
	}
	defer s.Release()
	return prepare(ctx, s.mem, s.path, o)
}

func prepare(ctx context.Context, m []byte, path string, o MemoryOptions) (MemoryReport, error) {
	r := MemoryReport{Path: path, Size: int64(len(m))}
	r.Prefault.Asked, r.Lock.Asked = o.prefault(), o.Lock
	root := os.DirFS("/")
	mount, _ := memory.MountOfDir(filepath.Dir(path))
	huge := memory.ReadHugeSettings(root, mount)

	// Huge pages first: then there are fewer pages to map, move and lock.
	var hugeErr error
	if o.HugePages != HugePagesOff && huge.PageSize > 0 {
		hugeErr = memory.Collapse(ctx, m, huge.PageSize)
	}
	if o.prefault() {
		if err := memory.Prefault(ctx, m, o.Workers, o.Progress); err != nil {
			return r, fmt.Errorf("shmring: %s: %w", path, err)
		}
	}
	// Only pages that are mapped can be moved.
	numaErr := r.NUMA.bind(m, root, o)
	if o.Lock {
		r.Lock.Reason = reasonOf(memory.Lock(m))
	}

	r.look(m)
	r.HugePages.judge(m, huge, o, hugeErr)
	r.NUMA.judge(m, numaErr)
	if lost := r.Missing(); o.Require && len(lost) > 0 {
		return r, fmt.Errorf("%w: %s: %s", ErrMemory, path, strings.Join(lost, "; "))
	}
	return r, nil
}

// look fills in what does not depend on what was asked for, and the parts that
// are judged by nothing else.
func (r *MemoryReport) look(m []byte) {
	n, err := memory.Allocated(r.Path)
	if r.Allocated = err == nil && n >= r.Size; !r.Allocated {
		r.AllocatedReason = reasonOf(err)
		if err == nil {
			r.AllocatedReason = fmt.Sprintf("%d of %d bytes of the file are allocated: it has holes", n, r.Size)
		}
	}
	if n, err := memory.Resident(m); err == nil {
		r.Resident = min(n, r.Size) // pages are whole, the segment is not
	}

	k, err := memory.Inspect(m)
	r.Mapped, r.Lock.Obtained, r.HugePages.Obtained = min(k.Mapped, r.Size), min(k.Locked, r.Size), k.Huge
	r.Prefault.Obtained = r.Mapped == r.Size
	if r.Prefault.Asked && !r.Prefault.Obtained {
		r.Prefault.Reason = unknownOr(err, "pages were taken away again, by swapping or by others that shrink the file")
	}
	if r.Lock.Asked && r.Lock.Obtained < r.Size && r.Lock.Reason == "" {
		r.Lock.Reason = unknownOr(err, "the kernel locked a part of it only")
	}
	if r.DontDump = k.Size > 0 && k.NoDump == k.Size; !r.DontDump {
		r.DontDumpReason = unknownOr(err, "the kernel does not say so: /proc/self/smaps lacks the flag dd")
	}
}

func (h *HugePageReport) judge(m []byte, s memory.HugeSettings, o MemoryOptions, cause error) {
	lo, hi := memory.Range(m)
	h.Asked, h.Possible = o.HugePages != HugePagesOff, s.Whole(lo, hi)
	if h.Asked && (h.Obtained < h.Possible || h.Possible == 0) {
		h.Reason = s.Why(lo, hi, cause)
	}
}

func (n *NUMAReport) bind(m []byte, root fs.FS, o MemoryOptions) error {
	n.Asked, n.AskedNodes = o.NUMA, slices.Clone(o.NUMANodes)
	if o.NUMA == NUMADefault {
		return nil
	}
	have, err := memory.Nodes(root)
	if o.NUMA == NUMAInterleave && len(n.AskedNodes) == 0 {
		if err != nil {
			return fmt.Errorf("the nodes are not known: %w", err)
		}
		n.AskedNodes = have
	}
	policy := memory.Bound
	if o.NUMA == NUMAInterleave {
		policy = memory.Interleaved
	}
	if e := memory.Bind(m, policy, n.AskedNodes); e != nil {
		if err == nil {
			return fmt.Errorf("%w; this machine has memory on the nodes %v", e, have)
		}
		return e
	}
	if o.NUMA == NUMAInterleave && len(n.AskedNodes) == 1 {
		return fmt.Errorf("there is only one node, %d, to interleave over", n.AskedNodes[0])
	}
	return nil
}

func (n *NUMAReport) judge(m []byte, cause error) {
	nodes, err := memory.NodeBytes(m)
	if err == nil {
		n.Nodes = nodes
	}
	if n.Asked == NUMADefault {
		return
	}
	switch {
	case cause != nil:
		n.Reason = cause.Error()
	case err != nil:
		n.Reason = unknownOr(err, "")
	default:
		n.Reason = n.misplaced()
	}
	n.Obtained = n.Reason == ""
}

// misplaced says which pages are not where the policy has them.
func (n *NUMAReport) misplaced() string {
	elsewhere := int64(0)
	for node, bytes := range n.Nodes {
		if !slices.Contains(n.AskedNodes, node) {
			elsewhere += bytes
		}
	}
	if elsewhere > 0 {
		return fmt.Sprintf("%d bytes are on other nodes: those have no room, or other processes map the pages too, which keeps them from being moved", elsewhere)
	}
	for _, node := range n.AskedNodes {
		if n.Asked == NUMAInterleave && n.Nodes[node] == 0 {
			return fmt.Sprintf("no page is on node %d", node)
		}
	}
	return ""
}

func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// unknownOr is reason, unless it could not be looked at.
func unknownOr(err error, reason string) string {
	if err != nil {
		return "not known: " + err.Error()
	}
	return reason
}
