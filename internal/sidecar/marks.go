package sidecar

import (
	"math/bits"

	"github.com/ringcache/ringcache/internal/mem"
)

// A mark shows the writer that it has to look at a slot: with no reader, the writer loads one
// word for eight slots, all in one cache line for 64 slots, and asks the kernel for nothing.
//
// A mark belongs to whoever holds the lock of its slot, and nobody else stores it. Hence a
// byte and not a bit: its owner stores it without regard to its neighbours, which any
// language can do.
//
// The holder of the lock sets the mark before it first names a chunk, so the full barrier
// of each [Slot.Hold] is behind the mark and the place alike: a writer that would have seen the place
// also sees the mark. The mark is cleared after the last place, by the reader when it ends,
// or by the writer when it gets the lock of the slot of a dead reader.
//
// A reader that is killed between these steps leaves one of:
//
//   - no mark, and a slot that was cleared for it or by it: nothing to do;
//   - a mark and an empty slot: it costs the writer a look, until [File.Reap] or the next reader
//     of the slot;
//   - a mark and places: the lock is free, so the writer clears both. A writer that is killed while
//     it does that leaves a mark, with places or without;
//   - places without a mark, if it stores something other than described here: the writer
//     does not look, so the reader was not protected, and the next one clears the slot first.
//
// A reader that writes anything anywhere can make a chunk stay, for as long as it lives, or
// lose its own protection. The writer takes every byte other than 0 for a mark, and looks at no
// mark behind that of the last slot.

// mark sets the mark of slot i, whose lock the caller holds.
// See docs/decisions.md, "Marks of slots are bytes on a page of their own".
func (s *slots) mark(i int) {
	word, shift := s.markWord(i)
	mem.Or32(word, 1<<shift)
}

// unmark clears the mark of slot i, whose lock the caller holds.
func (s *slots) unmark(i int) {
	word, shift := s.markWord(i)
	mem.And32(word, ^uint32(0xff<<shift))
}

// loadMark returns the mark of slot i and its offset in the file.
func (s *slots) loadMark(i int) (mark uint32, offset int64) {
	word, shift := s.markWord(i)
	return mem.Load32(word) >> shift & 0xff, int64(offMarks + i)
}

// markWord returns the word that contains the mark of slot i, and which bit the mark begins at.
func (s *slots) markWord(i int) (word []byte, shift int) {
	return s.mem[offMarks+i&^3:], i & 3 * 8
}

// marked returns the first slot from i on that has a mark, and the number of slots if there
// is none.
func (s *slots) marked(i int) int {
	n := s.opt.Slots
	for i < n {
		marks := mem.Load64(s.mem[offMarks+i&^7:]) >> (i & 7 * 8)
		if marks != 0 {
			return min(i+bits.TrailingZeros64(marks)/8, n)
		}
		i = i&^7 + 8
	}
	return n
}
