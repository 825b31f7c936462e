package shmring

import "math/bits"

// holes contains the free blocks in lists by size, 32 lists for each power of two.
type holes struct {
	head  [maxBin]*block
	some  [(maxBin + 63) / 64]uint64 // a bit for each list that is not empty
	count int
	// largest is one of the largest holes, nil if it has to be looked up.
	largest *block
	gone    []*bin // for addHole: so holes that come and go leave no garbage
}

const (
	binBits = 5
	maxBin  = (64 - binBits) << binBits
)

func binOf(length uint64) int {
	g := length / granule
	if g < 1<<binBits {
		return int(g)
	}
	s := bits.Len64(g) - binBits - 1
	return s<<binBits + int(g>>s)
}

// addHole puts a block, which is no chunk any more, into the list of its size.
func (p *Pool) addHole(b *block) {
	i := binOf(b.len)
	h := &p.holes
	place := h.newBin()
	b.id, b.size, b.owner = 0, 0, place
	if place.next = h.head[i]; place.next != nil {
		place.next.bin().prev = b
	}
	h.head[i] = b
	h.some[i/64] |= 1 << (i % 64)
	if h.count == 0 || h.largest != nil && b.len > h.largest.len {
		h.largest = b
	}
	h.count++
}

func (p *Pool) removeHole(b *block) {
	i := binOf(b.len)
	h := &p.holes
	place := b.bin()
	if place.prev != nil {
		place.prev.bin().next = place.next
	} else if h.head[i] = place.next; place.next == nil {
		h.some[i/64] &^= 1 << (i % 64)
	}
	if place.next != nil {
		place.next.bin().prev = place.prev
	}
	b.owner = nil
	*place = bin{}
	h.gone = append(h.gone, place)
	if h.largest == b {
		h.largest = nil
	}
	h.count--
}

// newBin returns a place, one that is gone if there is one.
func (h *holes) newBin() *bin {
	last := len(h.gone) - 1
	if last < 0 {
		return new(bin)
	}
	place := h.gone[last]
	h.gone[last] = nil
	h.gone = h.gone[:last]
	return place
}

// from returns the first hole of list i, nil if there is none.
func (h *holes) from(i int) *block {
	if i < 0 {
		return nil
	}
	return h.head[i]
}

// last returns the number of the list of the largest holes, -1 if there are no holes.
func (h *holes) last() int {
	for w := len(h.some) - 1; w >= 0; w-- {
		if h.some[w] != 0 {
			return w*64 + 63 - bits.LeadingZeros64(h.some[w])
		}
	}
	return -1
}

// next returns the number of the first list from i on that has holes, -1 if there is none.
func (h *holes) next(i int) int {
	for w := i / 64; w < len(h.some); w++ {
		m := h.some[w]
		if w == i/64 {
			m &= ^uint64(0) << (i % 64)
		}
		if m != 0 {
			return w*64 + bits.TrailingZeros64(m)
		}
	}
	return -1
}

// find returns a hole of at least n bytes, preferably one that is hardly larger. Holes in the
// list of n may be too small; those in later lists are large enough.
func (h *holes) find(n uint64) *block {
	i := binOf(n)
	var best *block
	for b := h.head[i]; b != nil; b = b.bin().next {
		if b.len >= n && (best == nil || b.len < best.len || b.len == best.len && b.off < best.off) {
			if best = b; b.len == n {
				break
			}
		}
	}
	if best == nil {
		best = h.from(h.next(i + 1))
	}
	return best
}
