package shmring

// walk bounds one search of Cheapest in blocks, so that finding room takes little time
// beside filling it, even in a pool of very many small chunks. Objects of a few MiB gain
// most from a longer search (bench/eviction).
func walk(need uint64) int {
	return int(min(max(need/(8<<10), min(need/(2<<10), midWalk), minWalk), maxWalk))
}

const (
	minWalk = 64
	midWalk = 1024
	maxWalk = 4096
)

// Cheapest looks for neighbouring chunks that make room for a payload of size bytes when
// they are freed, together with the holes between them. It appends the ids of the run with
// the lowest sum of costs to ids; cost gets a chunk and its owner (Own), and returns false for a
// chunk that may not be freed. In a pool with many blocks one call searches only a part, a larger
// one for a larger payload, and the next call continues behind it. If there is a run at all,
// Cheapest finds one.
// See docs/decisions.md, "Room is made by freeing a run of neighbours".
func (p *Pool) Cheapest(ids []uint32, size int, cost func(id uint32, owner any) (float64, bool)) ([]uint32, bool) {
	need := p.opt.extent(size)
	var best struct {
		from, to *block
		sum      float64
	}
	look := func(from *block, steps int) (stopped *block) {
		var head *block // of the run that ends at b
		var length uint64
		var sum float64
		costs := p.costs[:0] // of the blocks from head to b, the first ones are behind gone
		gone := 0
		defer func() { p.costs = costs }()
		for b := from; b != nil; b = b.next {
			if steps--; steps < 0 && best.from != nil {
				return b
			}
			c := 0.0
			if !b.free() {
				var may bool
				if c, may = cost(b.id, b.owner); !may {
					head, length, sum = nil, 0, 0
					costs, gone = costs[:0], 0
					continue
				}
			}
			if head == nil {
				head = b
			}
			costs = append(costs, c)
			length += b.len
			sum += c
			for length-head.len >= need {
				length -= head.len
				sum -= costs[gone]
				gone++
				head = head.next
			}
			if length >= need && (best.from == nil || sum < best.sum) {
				best.from, best.to, best.sum = head, b, sum
			}
		}
		return nil
	}
	start := p.rover
	limit := walk(need)
	if start == nil || len(p.live)+p.holes.count <= limit {
		start = p.first
	}
	next := look(start, limit)
	if best.from == nil && start != p.first {
		// From the front, and over the place where the first look began.
		next = look(p.first, limit)
	}
	if best.from == nil {
		return ids, false
	}
	p.rover = next
	for b := best.from; ; b = b.next {
		if !b.free() {
			ids = append(ids, b.id)
		}
		if b == best.to {
			return ids, true
		}
	}
}
