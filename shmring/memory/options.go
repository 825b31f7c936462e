package memory

import (
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/internal/sentinel"
)

// ErrMissing says that something [Options] required could not be had.
var ErrMissing = errors.New("shmring: memory is not as required")

// errInvalid matches the ErrInvalid of every package of this module.
var errInvalid = sentinel.New(sentinel.Invalid, "shmring: invalid argument")

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

// Options say how the memory of a segment should be. HugePages, NUMA and
// Lock imply Prefault, since they are about pages that are mapped.
type Options struct {
	// Prefault maps all pages, so that no first use is a page fault.
	Prefault bool
	// Workers that prefault, GOMAXPROCS if 0.
	Workers int
	// Progress, if not nil, is called while prefaulting with the bytes done so
	// far, ever more up to the total, by one goroutine at a time.
	Progress func(done, total int64)

	// HugePages asks for huge pages, by MADV_HUGEPAGE and MADV_COLLAPSE. Otherwise the
	// mount decides.
	HugePages bool
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
func (o Options) Validate() error {
	switch {
	case o.Workers < 0:
		return fmt.Errorf("%w: %d workers", errInvalid, o.Workers)
	case o.NUMA < NUMADefault || o.NUMA > NUMAInterleave:
		return fmt.Errorf("%w: %v", errInvalid, o.NUMA)
	case o.NUMA == NUMADefault && len(o.NUMANodes) > 0:
		return fmt.Errorf("%w: NUMA nodes %v without a policy", errInvalid, o.NUMANodes)
	case o.NUMA == NUMABind && len(o.NUMANodes) == 0:
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
	return o.Prefault || o.HugePages || o.NUMA != NUMADefault || o.Lock
}
