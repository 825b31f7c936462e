package ring

import (
	"encoding/binary"
	"slices"
)

// BestFit places blocks in the smallest hole that takes them, with gaps, and takes them back in
// any order. Nothing of it is like vLLM's ring but the header.
type BestFit struct {
	mem    []byte
	blocks []slot // by offset
	next   uint32
}

// NewBestFit makes an allocator without blocks.
func NewBestFit(mem []byte, firstID uint32) *BestFit { return &BestFit{mem: mem, next: firstID} }

// gap is left free behind each block.
const gap = 3

// Take hands out a block for n bytes.
func (b *BestFit) Take(n int) (off int, id uint32, err error) {
	if n <= 0 || n > len(b.mem) {
		return 0, 0, ErrNoSpace
	}
	need := n + 8
	best, at, room := -1, 0, len(b.mem)+1
	from := 0
	for i := 0; i <= len(b.blocks); i++ {
		end := len(b.mem) + gap // the last block needs no gap
		if i < len(b.blocks) {
			end = b.blocks[i].off
		}
		if hole := end - from - gap; need <= hole && hole < room {
			best, at, room = i, from, hole
		}
		if i < len(b.blocks) {
			from = b.blocks[i].off + b.blocks[i].len + gap
		}
	}
	if best < 0 {
		return 0, 0, ErrNoSpace
	}
	id = b.next
	b.next = (id + 1) % (1 << 31)
	b.blocks = slices.Insert(b.blocks, best, slot{id: id, off: at, len: need})
	binary.LittleEndian.PutUint32(b.mem[at:], id)
	binary.LittleEndian.PutUint32(b.mem[at+4:], uint32(need))
	return at, id, nil
}

// Return takes a block back, and reports whether it was there.
func (b *BestFit) Return(id uint32) bool {
	i := slices.IndexFunc(b.blocks, func(s slot) bool { return s.id == id })
	if i < 0 {
		return false
	}
	binary.LittleEndian.PutUint32(b.mem[b.blocks[i].off:], 0xffffffff) // no id
	b.blocks = slices.Delete(b.blocks, i, i+1)
	return true
}
