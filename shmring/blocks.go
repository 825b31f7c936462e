package shmring

// block is a run of granules: a chunk, or a hole.
type block struct {
	off, len   uint64
	prev, next *block // by address

	owner any // of a chunk, see Pool.Own; of a hole its *bin

	id   uint32 // of a chunk
	size int32  // bytes of the chunk with its header, at most len; 0 in a hole
}

func (b *block) free() bool { return b.size == 0 }

// bin is the place of a hole in the list of its size.
type bin struct{ prev, next *block }

// bin returns the place of a hole.
func (b *block) bin() *bin { return b.owner.(*bin) }

// slab is how many blocks are allocated at a time: 4 KiB.
const slab = 73

// newBlock makes a block, of one that is gone if there is one: so chunks that come and go leave
// no garbage.
func (p *Pool) newBlock(off, n uint64, prev, next *block) *block {
	if p.gone == nil {
		blocks := make([]block, min(max(len(p.live), 1), slab))
		for i := range blocks {
			p.giveUp(&blocks[i])
		}
	}
	b := p.gone
	p.gone = b.next
	*b = block{off: off, len: n, prev: prev, next: next}
	return b
}

// giveUp keeps a block that nothing refers to for newBlock.
func (p *Pool) giveUp(b *block) {
	*b = block{next: p.gone}
	p.gone = b
}

// cut shortens a block to n bytes and makes the rest a hole.
func (p *Pool) cut(b *block, n uint64) {
	if b.len == n {
		return
	}
	rest := p.newBlock(b.off+n, b.len-n, b, b.next)
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
	p.giveUp(n)
}
