package shmring

// block is a run of granules: a chunk, or a hole.
type block struct {
	off, len   uint64
	prev, next *block // by address

	free             bool
	binPrev, binNext *block // of a hole

	id   uint32 // of a chunk
	size int    // bytes of the chunk with its header, at most len

	cost float64 // while Cheapest looks
}

// cut shortens a block to n bytes and makes the rest a hole.
func (p *Pool) cut(b *block, n uint64) {
	if b.len == n {
		return
	}
	rest := &block{off: b.off + n, len: b.len - n, prev: b, next: b.next}
	if rest.next != nil {
		rest.next.prev = rest
	}
	b.next, b.len = rest, n
	p.addHole(rest)
}

// swallow merges a block with its next one.
func (p *Pool) swallow(b *block) {
	n := b.next
	b.len += n.len
	b.next = n.next
	if b.next != nil {
		b.next.prev = b
	}
	if p.rover == n {
		p.rover = b
	}
}
