package tier

import (
	"context"
	"fmt"
	"slices"
)

const (
	maxBatch   = 64      // objects that are moved by one call
	batchBytes = 1 << 20 // of small objects that have nothing to do with each other
)

// plan makes the transfers of the fetches that one lookup found. A child whose parent was asked for with it is
// transferred only if the parent is in memory, or in front of it in the same chain of jobs; otherwise it is
// finished, since it is worthless. One whose parent is fetched by another job waits for that one. One whose
// parent nobody asks for is transferred alone: who asks for it has the parent elsewhere, as an engine whose
// own prefix cache has the tokens in front of a chunk.
type plan struct {
	*fetcher
	ctx   context.Context
	asked []Key // in the same call, found or not
}

// jobs returns the first jobs of the chains, which are to be queued.
func (p plan) jobs(found []*fetch) []*job {
	var firsts []*job
	var small *job
	for _, tree := range p.trees(found) {
		chain := p.cut(tree)
		first := chain[0]
		if len(chain) == 1 && first.size <= batchBytes {
			if small != nil && small.size+first.size <= batchBytes &&
				len(small.fetches)+len(first.fetches) <= maxBatch {
				small.merge(first)
				continue
			}
			small = first
		}
		firsts = append(firsts, first)
	}
	return firsts
}

// merge adds the fetches of another transfer.
func (j *job) merge(other *job) {
	j.fetches = append(j.fetches, other.fetches...)
	j.size += other.size
	j.level = max(j.level, other.level)
	for tenant, size := range other.tenants {
		j.tenants[tenant] += size
	}
}

// cut divides a tree, parents first, into a chain of transfers, each of which is queued after the one before.
func (p plan) cut(tree []*fetch) []*job {
	var chain []*job
	for _, x := range tree {
		last := len(chain) - 1
		if last < 0 || len(chain[last].fetches) >= maxBatch || x.object.Size > p.budget.limit/4-chain[last].size {
			chain = append(chain, &job{run: p.runTransfer, index: -1, tenants: map[string]int64{}})
			if last >= 0 {
				chain[last].next = chain[last+1]
			}
			last++
		}
		chain[last].merge(&job{
			fetches: []*fetch{x}, size: x.object.Size, level: x.level,
			tenants: map[string]int64{x.object.Tenant: x.object.Size},
		})
	}
	return chain
}

// trees sorts fetches, which are in the order in which they were asked for, into trees, each with parents in
// front of their children. Those that belong into no tree wait for their parents, or are finished.
func (p plan) trees(found []*fetch) [][]*fetch {
	order := slices.SortedStableFunc(slices.Values(found), func(a, b *fetch) int { return a.order - b.order })
	here := make(map[Key]bool, len(order))
	for _, x := range order {
		here[x.key] = true
	}
	var roots, unsure []*fetch
	children := map[Key][]*fetch{}
	asked := make(map[Key]bool, len(p.asked))
	for _, k := range p.asked {
		asked[k] = true
	}
	for _, x := range order {
		parent, ok := x.object.ParentKey()
		x.needsParent = x.needsParent || asked[parent] // also if it is looked up once more, alone
		switch {
		case !ok:
			roots = append(roots, x)
		case here[parent]:
			children[parent] = append(children[parent], x)
		default:
			unsure = append(unsure, x)
		}
	}
	roots = append(roots, p.withParentInMemory(unsure)...)
	trees := make([][]*fetch, 0, len(roots))
	for _, root := range roots {
		tree := []*fetch{root}
		for i := 0; i < len(tree); i++ {
			tree = append(tree, children[tree[i].key]...)
			delete(children, tree[i].key)
		}
		trees = append(trees, tree)
	}
	if len(children) > 0 {
		p.awaitOrFinish(order, children)
	}
	return trees
}

// withParentInMemory returns those of the fetches that can be transferred, since their parents are in memory or
// nobody asks for these. The others wait for the fetches of their parents, or are finished.
func (p plan) withParentInMemory(fetches []*fetch) []*fetch {
	if len(fetches) == 0 {
		return nil
	}
	parents := make([]Key, len(fetches))
	for i, x := range fetches {
		parents[i], _ = x.object.ParentKey()
	}
	// Without the job's context: somebody may have interest again in what was cancelled.
	answers := p.memory.Stat(context.WithoutCancel(p.ctx), parents)
	p.mu.Lock()
	defer p.mu.Unlock()
	var roots []*fetch
	for i, x := range fetches {
		parent := p.fetches[parents[i]]
		switch {
		case answers[i].Err == nil:
			roots = append(roots, x)
		case parent != nil && !parent.waitsFor(x) && x.hasInterest():
			x.setParent(parent)
		case !x.needsParent:
			roots = append(roots, x)
		default:
			p.finish(x, errWithoutParent(x))
		}
	}
	return roots
}

// awaitOrFinish lets children wait for parents that wait themselves, and finishes the others: somebody made a
// circle of parents.
func (p plan) awaitOrFinish(order []*fetch, children map[Key][]*fetch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var waiting []*fetch
	for _, x := range order {
		if x.parent != nil {
			waiting = append(waiting, x)
		}
	}
	for i := 0; i < len(waiting); i++ {
		for _, x := range children[waiting[i].key] {
			if x.hasInterest() {
				x.setParent(waiting[i])
				waiting = append(waiting, x)
			}
		}
	}
	for _, siblings := range children {
		for _, x := range siblings {
			if x.parent == nil {
				p.finish(x, errWithoutParent(x))
			}
		}
	}
}

// waitsFor reports whether x waits, over any number of parents, for other, or is other.
func (x *fetch) waitsFor(other *fetch) bool {
	for ; x != nil; x = x.parent {
		if x == other {
			return true
		}
	}
	return false
}

// setParent lets a fetch wait for that of its parent.
func (x *fetch) setParent(parent *fetch) {
	x.job, x.parent = nil, parent
	parent.children = append(parent.children, x)
	parent.waiters++
}

// errOrphan is the cause of a child that is not fetched, although a level has it.
var errOrphan = fmt.Errorf("its parent is not there, without which it is worthless: %w", ErrNotFound)

// errWithoutParent is the answer about a child whose parent is nowhere.
func errWithoutParent(x *fetch) error {
	return fmt.Errorf("tier: object %v: parent %q: %w", x.key, x.object.Parent, errOrphan)
}
