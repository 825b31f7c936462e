package memory

import (
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/internal/sentinel"
)

// ErrMissing reports that something that [Options] require could not be obtained.
var ErrMissing = errors.New("memory: not as required")

// errInvalid is an fs.ErrInvalid.
var errInvalid = sentinel.New(sentinel.Invalid, "memory: invalid argument")

// The policies of Options.NUMA.
const (
	numaBind       = "bind"
	numaInterleave = "interleave"
)

// Options request a state of the memory of a segment. HugePages, NUMA and Lock imply
// Prefault, since they concern pages that are mapped.
type Options struct {
	// Prefault maps all pages, so that no first use is a page fault.
	Prefault bool
	// Workers is the number of goroutines that prefault, GOMAXPROCS if 0.
	Workers int
	// Progress, if not nil, is called while prefaulting with the bytes done so far and
	// their total. Calls don't overlap, and done increases.
	Progress func(done, total int64)

	// HugePages requests huge pages, by MADV_HUGEPAGE and MADV_COLLAPSE. Otherwise the
	// options of the mount decide.
	HugePages bool
	// NUMA is how the pages are placed on NUMA nodes: "bind" allows only NUMANodes,
	// "interleave" spreads the pages over them in turn. Empty leaves the placement to the
	// system: the node of the CPU that first touches the page.
	NUMA string
	// NUMANodes are the nodes of NUMA. With "interleave", an empty list means all nodes
	// with memory.
	NUMANodes []int
	// Lock keeps the segment from being swapped out while this process maps it.
	Lock bool
	// Require makes Prepare fail if something could not be obtained. Otherwise only the
	// report contains it.
	Require bool
}

// Validate reports what is wrong with the options.
func (o Options) Validate() error {
	switch {
	case o.Workers < 0:
		return fmt.Errorf("%w: %d workers", errInvalid, o.Workers)
	case o.NUMA != "" && o.NUMA != numaBind && o.NUMA != numaInterleave:
		return fmt.Errorf("%w: NUMA %q, want %q, %q or nothing", errInvalid, o.NUMA, numaBind, numaInterleave)
	case o.NUMA == "" && len(o.NUMANodes) > 0:
		return fmt.Errorf("%w: NUMA nodes %v without a policy", errInvalid, o.NUMANodes)
	case o.NUMA == numaBind && len(o.NUMANodes) == 0:
		return fmt.Errorf("%w: no NUMA node to bind to", errInvalid)
	}
	for _, n := range o.NUMANodes {
		if n < 0 || n > maxNode {
			return fmt.Errorf("%w: NUMA node %d is not in 0 to %d", errInvalid, n, maxNode)
		}
	}
	return nil
}

func (o Options) mapsPages() bool {
	return o.Prefault || o.HugePages || o.NUMA != "" || o.Lock
}
