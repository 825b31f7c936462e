package shmring

import (
	"cmp"
	"slices"

	"github.com/ringcache/ringcache/internal/mem"
)

// Restore takes over chunks that an earlier pool placed in the same memory, as
// far as their place is possible and no other chunk lies there too; these are
// returned, sorted by address, and the others are left out. New chunks get ids from
// nextID on. The pool must be empty. Headers are neither read nor written.
func (p *Pool) Restore(chunks []Chunk, nextID uint32) []Chunk {
	p.nextID = nextID % IDLimit
	first, room := p.opt.first(), p.room()
	var ok []Chunk
	for _, c := range chunks {
		if c.Size > HeaderSize && c.Size <= MaxChunk && c.ID < IDLimit && c.Address >= first &&
			(c.Address-first)%p.opt.unit() == 0 &&
			c.Address-first < room && p.opt.extent(c.Size-HeaderSize) <= room-(c.Address-first) {
			ok = append(ok, c)
		}
	}
	slices.SortFunc(ok, func(a, b Chunk) int { return cmp.Compare(a.Address, b.Address) })
	seen := map[uint32]int{}
	for _, c := range ok {
		seen[c.ID]++
	}
	end := func(c Chunk) uint64 { return c.Address + p.opt.extent(c.Size-HeaderSize) }
	var kept []Chunk
	var reach uint64 // the end of all chunks so far, kept or not
	for i, c := range ok {
		overlaps := c.Address < reach || i+1 < len(ok) && ok[i+1].Address < end(c)
		reach = max(reach, end(c))
		if !overlaps && seen[c.ID] == 1 {
			kept = append(kept, c)
		}
	}
	rest := p.first // the hole behind the last chunk
	for _, c := range kept {
		rest = p.claim(rest, c)
	}
	return kept
}

// claim makes a chunk in the hole rest, and returns the hole behind it, if any.
func (p *Pool) claim(rest *block, c Chunk) *block {
	p.removeHole(rest)
	if gap := c.Address - rest.off; gap > 0 {
		p.cut(rest, gap)
		p.addHole(rest)
		rest = rest.next
		p.removeHole(rest)
	}
	p.cut(rest, p.opt.extent(c.Size-HeaderSize))
	rest.id, rest.size = c.ID, int32(c.Size)
	p.live[c.ID] = rest
	p.used += rest.len
	return rest.next
}

// Scrub writes [GoneID] wherever a chunk in free room can have had its header, so that every
// handle to such a place is stale.
func (p *Pool) Scrub() {
	for b := p.first; b != nil; b = b.next {
		for off := b.off; b.free() && off < b.off+b.len; off += granule {
			mem.Store32(p.buf[off:], GoneID)
		}
	}
	mem.Fence()
}
