package memory

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ringcache/ringcache/internal/shmfile"
)

// Prepare does what the options request for m, a mapping of the whole file at path, and
// reports the state of the memory. It changes no byte, and others may use the memory
// meanwhile. With zero options it only reports.
//
// The report contains a reason for everything that could not be obtained; with
// [Options].Require the lack is also an error that wraps [ErrMissing]. Other errors are an
// invalid argument, that of the context, and a page that the kernel can't provide. With an
// error, the report may be incomplete.
func Prepare(ctx context.Context, m []byte, path string, o Options) (Report, error) {
	if err := o.Validate(); err != nil {
		return Report{}, err
	}
	r := Report{Path: path, Size: int64(len(m))}
	r.Prefault.Asked, r.Lock.Asked = o.mapsPages(), o.Lock
	root := os.DirFS("/")
	mount, _ := shmfile.MountOfDir(filepath.Dir(path))
	huge := readHugeSettings(root, mount)

	// Mapping the pages of a file with holes makes them, until there is no room left for anybody.
	if n, err := allocated(path); o.mapsPages() && err == nil && n < r.Size {
		if err := shmfile.CheckRoom(path, r.Size-n); err != nil {
			return r, fmt.Errorf("memory: %w", err)
		}
	}
	// Huge pages first: then there are fewer pages to map, move and lock.
	var hugeErr error
	if o.HugePages && huge.PageSize > 0 {
		hugeErr = collapse(ctx, m, huge.PageSize)
	}
	if o.mapsPages() {
		if err := prefault(ctx, m, o.Workers, o.Progress); err != nil {
			return r, fmt.Errorf("memory: %s: %w", path, err)
		}
	}
	// Only mapped pages can be moved.
	numaErr := r.bind(m, root, o)
	if o.Lock {
		r.Lock.Reason = reasonOf(lock(m))
	}

	r.look(m)
	// A kernel that reclaims ahead of need unmaps a page now and then.
	for range maxRepeats {
		if r.Prefault.Obtained || !o.mapsPages() {
			break
		}
		if err := prefault(ctx, m, o.Workers, nil); err != nil {
			return r, fmt.Errorf("memory: %s: %w", path, err)
		}
		r.look(m)
	}
	r.judgeHugePages(m, huge, o, hugeErr)
	r.judgeNUMA(m, numaErr)
	if lost := r.Missing(); o.Require && len(lost) > 0 {
		return r, fmt.Errorf("%w: %s: %s", ErrMissing, path, strings.Join(lost, "; "))
	}
	return r, nil
}

// maxRepeats is how often pages that were unmapped meanwhile are mapped again.
const maxRepeats = 3

// look reports the state of the memory, and judges everything but huge pages and NUMA.
func (r *Report) look(m []byte) {
	n, err := allocated(r.Path)
	if r.Allocated = err == nil && n >= r.Size; !r.Allocated {
		r.AllocatedReason = reasonOf(err)
		if err == nil {
			r.AllocatedReason = fmt.Sprintf("%d of %d bytes of the file are allocated: it has holes", n, r.Size)
		}
	}
	if n, err := resident(m); err == nil {
		r.Resident = min(n, r.Size) // the last page may extend beyond the segment
	}

	k, err := inspect(m)
	r.Mapped, r.Lock.Obtained, r.HugePages.Obtained = min(k.Mapped, r.Size), min(k.Locked, r.Size), k.Huge
	r.Prefault.Obtained, r.Prefault.Reason = r.Mapped == r.Size, ""
	if r.Prefault.Asked && !r.Prefault.Obtained {
		r.Prefault.Reason = unknownOr(err,
			"pages were taken away again, by swapping or by a process that shrank the file")
	}
	if r.Lock.Asked && r.Lock.Obtained < r.Size && r.Lock.Reason == "" {
		r.Lock.Reason = unknownOr(err, "the kernel locked only a part of it")
	}
	if r.DontDump = k.Size > 0 && k.NoDump == k.Size; !r.DontDump {
		r.DontDumpReason = unknownOr(err, "/proc/self/smaps lacks the flag dd")
	}
}

func (r *Report) judgeHugePages(m []byte, s hugeSettings, o Options, cause error) {
	h := &r.HugePages
	lo, hi := pageRange(m)
	h.Asked, h.Possible = o.HugePages, s.wholePages(lo, hi)
	if h.Asked && (h.Obtained < h.Possible || h.Possible == 0) {
		h.Reason = s.why(lo, hi, cause)
	}
}

// bind sets the NUMA policy of the options.
func (r *Report) bind(m []byte, root fs.FS, o Options) error {
	n := &r.NUMA
	n.Asked, n.AskedNodes = o.NUMA, slices.Clone(o.NUMANodes)
	if o.NUMA == "" {
		return nil
	}
	have, err := nodesWithMemory(root)
	if o.NUMA == numaInterleave && len(n.AskedNodes) == 0 {
		if err != nil {
			return fmt.Errorf("the nodes are unknown: %w", err)
		}
		n.AskedNodes = have
	}
	policy := bound
	if o.NUMA == numaInterleave {
		policy = interleaved
	}
	if e := bind(m, policy, n.AskedNodes); e != nil {
		if err == nil {
			return fmt.Errorf("%w; this machine has memory on the nodes %v", e, have)
		}
		return e
	}
	if o.NUMA == numaInterleave && len(n.AskedNodes) == 1 {
		return fmt.Errorf("there is only one node, %d, to interleave over", n.AskedNodes[0])
	}
	return nil
}

func (r *Report) judgeNUMA(m []byte, cause error) {
	n := &r.NUMA
	nodes, err := nodeBytes(m)
	if err == nil {
		n.Nodes = nodes
	}
	if n.Asked == "" {
		return
	}
	switch {
	case cause != nil:
		n.Reason = cause.Error()
	case err != nil:
		n.Reason = unknownOr(err, "")
	default:
		n.Reason = r.misplaced()
	}
	n.Obtained = n.Reason == ""
}

// misplaced describes pages that are not where the policy places them, "" if there are none.
func (r *Report) misplaced() string {
	n := &r.NUMA
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
		if n.Asked == numaInterleave && n.Nodes[node] == 0 {
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

// unknownOr returns reason, or err if looking failed.
func unknownOr(err error, reason string) string {
	if err != nil {
		return "unknown: " + err.Error()
	}
	return reason
}
