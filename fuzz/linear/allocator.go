package linear

import (
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"
)

// AllocatorCall allocates Size bytes if that is not 0, and frees the chunk ID else.
type AllocatorCall struct {
	Size int // of the chunk, with all that it takes
	ID   uint32
}

// AllocatorResult is what an [AllocatorCall] got.
type AllocatorResult struct {
	ID      uint32 // of the new chunk
	Address uint64 // in the memory
	Full    bool   // there was no room
	Freed   bool
}

// AllocatorOptions are those of [Allocator].
type AllocatorOptions struct {
	Size    int    // of the memory in bytes
	FirstID uint32 // of the first chunk
	IDLimit uint32 // ids go on at 0 from there; 0 is 2^31
}

// chunk is one that is live.
type chunk struct {
	address uint64
	size    int
	id      uint32
}

// allocator is the state: live chunks by address, and the id of the next.
type allocator struct {
	next   uint32
	chunks []chunk
}

// Allocator is an allocator of chunks that lie inside the memory and don't overlap, with ids that
// count up; an id that is still live is left out. It may be full at any time but when nothing is live.
func Allocator(o AllocatorOptions) porcupine.Model {
	if o.IDLimit == 0 {
		o.IDLimit = 1 << 31
	}
	alloc := func(is allocator, size int, r AllocatorResult) (bool, allocator) {
		if r.Full {
			return len(is.chunks) > 0 || size > o.Size, is
		}
		id := is.next
		for slices.ContainsFunc(is.chunks, func(c chunk) bool { return c.id == id }) {
			id = (id + 1) % o.IDLimit
		}
		at := uint64(size)
		if r.ID != id || at > uint64(o.Size) || r.Address > uint64(o.Size)-at {
			return false, is
		}
		i := 0
		for i < len(is.chunks) && is.chunks[i].address < r.Address {
			i++
		}
		if i > 0 && is.chunks[i-1].address+uint64(is.chunks[i-1].size) > r.Address || i < len(is.chunks) &&
			r.Address+at > is.chunks[i].address {
			return false, is
		}
		return true, allocator{(id + 1) % o.IDLimit,
			slices.Insert(slices.Clone(is.chunks), i, chunk{r.Address, size, id})}
	}
	return porcupine.Model{
		Init: func() any { return allocator{next: o.FirstID} },
		Step: func(state, input, output any) (bool, any) {
			is, c, r := state.(allocator), input.(AllocatorCall), output.(AllocatorResult)
			if c.Size != 0 {
				return alloc(is, c.Size, r)
			}
			i := slices.IndexFunc(is.chunks, func(live chunk) bool { return live.id == c.ID })
			if !r.Freed || i < 0 {
				return r.Freed == (i >= 0), is
			}
			return true, allocator{is.next, slices.Delete(slices.Clone(is.chunks), i, i+1)}
		},
		Equal: func(a, b any) bool {
			return a.(allocator).next == b.(allocator).next && slices.Equal(a.(allocator).chunks, b.(allocator).chunks)
		},
		DescribeOperation: func(input, output any) string {
			c, r := input.(AllocatorCall), output.(AllocatorResult)
			switch {
			case c.Size == 0:
				return fmt.Sprintf("free %d: %t", c.ID, r.Freed)
			case r.Full:
				return fmt.Sprintf("alloc %d: full", c.Size)
			}
			return fmt.Sprintf("alloc %d: %d at %d", c.Size, r.ID, r.Address)
		},
		DescribeState: func(state any) string { return fmt.Sprintf("%+v", state) },
	}
}
