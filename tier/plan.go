package tier

import (
	"context"
	"fmt"
	"slices"
)

const (
	maxTogether   = 64      // objects that are moved by one call
	bytesTogether = 1 << 20 // of small objects that have nothing to do with each other
)

// plan makes the jobs that move flights. A child is moved only if its parent is in memory, or in front of it in the
// same row of jobs; one whose parent is on the way in another job waits for that one.
func (s *Store) plan(ctx context.Context, found map[*flight]bool) []*job {
	trees := s.trees(ctx, found)
	var jobs []*job
	var small *job
	for _, tree := range trees {
		rows := s.cut(tree)
		if len(rows) == 1 && rows[0].size <= bytesTogether {
			row := rows[0]
			if small != nil && small.size+row.size <= bytesTogether && len(small.flights)+len(row.flights) <= maxTogether {
				small.flights = append(small.flights, row.flights...)
				small.size += row.size
				small.level = max(small.level, row.level)
				for tenant, size := range row.tenants {
					small.tenants[tenant] += size
				}
				continue
			}
			small = row
		}
		jobs = append(jobs, rows[0])
	}
	for _, first := range jobs {
		for j := first; j != nil; j = j.next {
			j.run = s.transfer
		}
	}
	return jobs
}

// cut divides a tree, parents first, into jobs one after the other.
func (s *Store) cut(tree []*flight) []*job {
	var rows []*job
	for _, f := range tree {
		last := len(rows) - 1
		if last < 0 || len(rows[last].flights) >= maxTogether || f.object.Size > s.moving.most/4-rows[last].size {
			rows = append(rows, &job{index: -1, tenants: map[string]int64{}})
			if last >= 0 {
				rows[last].next = rows[last+1]
			}
			last++
		}
		row := rows[last]
		row.flights = append(row.flights, f)
		row.size += f.object.Size
		row.level = max(row.level, f.level)
		row.tenants[f.object.Tenant] += f.object.Size
	}
	return rows
}

// trees sorts flights into trees, each with parents in front of their children. Flights whose parents are nowhere end:
// a child without its parent is worthless.
func (s *Store) trees(ctx context.Context, found map[*flight]bool) [][]*flight {
	order := make([]*flight, 0, len(found))
	here := make(map[Key]*flight, len(found))
	for f := range found {
		order = append(order, f)
		here[f.key] = f
	}
	slices.SortFunc(order, func(a, b *flight) int { return a.place - b.place })
	var roots, unsure []*flight
	children := map[Key][]*flight{}
	for _, f := range order {
		parent, ok := f.object.ParentKey()
		switch {
		case !ok:
			roots = append(roots, f)
		case here[parent] != nil:
			children[parent] = append(children[parent], f)
		default:
			unsure = append(unsure, f)
		}
	}
	roots = append(roots, s.settleParents(ctx, unsure)...)
	reached := 0
	trees := make([][]*flight, 0, len(roots))
	for _, root := range roots {
		tree := []*flight{root}
		for i := 0; i < len(tree); i++ {
			tree = append(tree, children[tree[i].key]...)
			delete(children, tree[i].key)
		}
		reached += len(tree)
		trees = append(trees, tree)
	}
	if len(children) > 0 {
		s.endOrphans(order, children)
	}
	return trees
}

// settleParents returns those of the flights whose parents are in memory. The others wait for their parents,
// or end.
func (s *Store) settleParents(ctx context.Context, flights []*flight) []*flight {
	if len(flights) == 0 {
		return nil
	}
	parents := make([]Key, len(flights))
	for i, f := range flights {
		parents[i], _ = f.object.ParentKey()
	}
	answers := s.memory.Stat(context.WithoutCancel(ctx), parents) // a flight that was given up may be wanted again by now
	s.mu.Lock()
	defer s.mu.Unlock()
	var roots []*flight
	for i, f := range flights {
		p := s.flights[parents[i]]
		switch {
		case answers[i].Err == nil:
			roots = append(roots, f)
		case p != nil && !p.ended && !waitsFor(p, f) && f.wanted():
			s.await(f, p)
		default:
			s.end(f, orphan(f))
		}
	}
	return roots
}

// waitsFor reports whether p waits, over any number of parents, for f.
func waitsFor(p, f *flight) bool {
	for ; p != nil; p = p.parent {
		if p == f {
			return true
		}
	}
	return false
}

// endOrphans lets flights wait for parents that wait themselves, and ends those whose parents are not on the way,
// because somebody made a circle of parents.
func (s *Store) endOrphans(order []*flight, children map[Key][]*flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var waiting []*flight
	for _, f := range order {
		if f.parent != nil {
			waiting = append(waiting, f)
		}
	}
	for i := 0; i < len(waiting); i++ {
		for _, f := range children[waiting[i].key] {
			if f.wanted() {
				s.await(f, waiting[i])
				waiting = append(waiting, f)
			}
		}
	}
	for _, flights := range children {
		for _, f := range flights {
			if f.parent == nil {
				s.end(f, orphan(f))
			}
		}
	}
}

// await lets a flight wait for that of its parent.
func (s *Store) await(f, parent *flight) {
	f.job, f.parent = nil, parent
	parent.after = append(parent.after, f)
	parent.waits++
}

// errOrphan is the cause of a child that is not brought. A level has it all the same.
var errOrphan = fmt.Errorf("its parent is not there, without which it is worthless: %w", ErrNotFound)

func orphan(f *flight) error {
	return fmt.Errorf("tier: object %v: parent %q: %w", f.key, f.object.Parent, errOrphan)
}
