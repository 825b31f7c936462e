package serde

// memory is where a decoded value lies, but for the bytes of its tensors, its keys, lists
// and numbers. It has room for usual items, so that one allocation does for them.
type memory struct {
	items   block[Item]
	elems   block[Elem]
	tensors block[Tensor]
	dims    block[int]
	lists   block[[]Slice]
	slices  block[Slice]
	bounds  block[int64]

	room struct {
		items   [1]Item
		elems   [2]Elem
		tensors [2]Tensor
		dims    [6]int
		lists   [1][]Slice
		slices  [1]Slice
		bounds  [3]int64
	}
}

func newMemory() *memory {
	m := new(memory)
	m.init()
	return m
}

// init gives an empty memory its room.
func (m *memory) init() {
	m.items.all, m.elems.all = m.room.items[:], m.room.elems[:]
	m.tensors.all, m.dims.all = m.room.tensors[:], m.room.dims[:]
	m.lists.all, m.slices.all, m.bounds.all = m.room.lists[:], m.room.slices[:], m.room.bounds[:]
}

// reset takes back all that was taken. Of elems the keys stay, since those of the next
// item are probably the same; nothing else of the last value does.
func (m *memory) reset() {
	for i := range m.elems.all {
		e := &m.elems.all[i]
		*e = Elem{Key: e.Key}
	}
	clear(m.items.all)
	clear(m.tensors.all)
	clear(m.lists.all)
	clear(m.slices.all)
	m.items.reset()
	m.elems.reset()
	m.tensors.reset()
	m.dims.reset()
	m.lists.reset()
	m.slices.reset()
	m.bounds.reset()
}

// block hands out pieces of one allocation, and others of their own when it is used up.
type block[T any] struct {
	all  []T
	used int // entries that were asked for since the last reset
}

func (b *block[T]) take(n int) []T {
	at := b.used
	b.used += n
	if b.used > len(b.all) {
		return make([]T, n)
	}
	return b.all[at:b.used:b.used]
}

// reset makes the block as large as what was taken from it.
func (b *block[T]) reset() {
	if b.used > len(b.all) {
		b.all = make([]T, b.used)
	}
	b.used = 0
}
