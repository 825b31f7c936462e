package model

import (
	"encoding/binary"
	"errors"
)

const (
	header  = 8       // bytes of id and size in front of a payload
	idLimit = 1 << 31 // ids are below it
)

// ErrFull is what FIFO.Alloc fails with when there is no room, or never will be.
var ErrFull = errors.New("no room")

// ErrSize is what FIFO.Alloc fails with for sizes below 1.
var ErrSize = errors.New("a chunk has a payload of at least 1 byte")

// FIFO is vLLM's ring: docs/format.md, section Ring. Positions and addresses run on over the end
// of the memory. They are signed, since those of 0.11.0 can fall below 0.
type FIFO struct {
	Start, End     int            // the oldest chunk, and the end of the newest
	IDStart, IDEnd uint32         // the oldest chunk, and the next one
	Live           map[uint32]int // addresses by id
	Memory         []byte

	release Release
}

// NewFIFO makes an empty ring of size bytes.
func NewFIFO(r Release, size int, firstID uint32) *FIFO {
	f := &FIFO{IDStart: firstID, IDEnd: firstID, Live: map[uint32]int{}, Memory: make([]byte, size), release: r}
	if r.PhantomStart {
		f.Live[0] = 0
	}
	return f
}

// Alloc places a chunk and writes its header.
func (f *FIFO) Alloc(payload int) (address int, id uint32, err error) {
	n := len(f.Memory)
	if payload <= 0 {
		return 0, 0, ErrSize
	}
	largest := n - header
	if f.release.PhantomStart {
		largest = 2 * n // its start may lie behind the end, and then there seems to be more than the ring
	}
	if payload > largest { // before anything is added to it
		return 0, 0, ErrFull
	}
	size := payload + header
	address = f.End
	if Offset(address, n)+size > n {
		address += n - Offset(address, n)
	}
	if address+size-f.Start > n {
		return 0, 0, ErrFull
	}
	id = f.IDEnd
	at := Offset(address, n)
	binary.LittleEndian.PutUint32(f.Memory[at:], id)
	binary.LittleEndian.PutUint32(f.Memory[at+4:], uint32(size))
	f.Live[id] = address
	f.End = address + size
	f.IDEnd = after(id)
	return address, id, nil
}

// Free frees chunks, oldest first, until one may not go, none is left, or at least limit bytes of
// chunks, as their headers have it, are free.
func (f *FIFO) Free(may func(id uint32) bool, limit int) (freed []uint32) {
	freed, _ = f.free(func(id uint32, _ []byte) (bool, error) { return may(id), nil }, limit) // no error
	return freed
}

// free is Free for those who look at what stands behind the header, or fail to. An error ends it at
// once: as in vLLM, chunks freed until then are free and not returned.
func (f *FIFO) free(may func(id uint32, payload []byte) (bool, error), limit int) (freed []uint32, err error) {
	n := len(f.Memory)
	for bytes := 0; bytes < limit; {
		id := f.IDStart
		address, ok := f.Live[id]
		if !ok {
			break
		}
		_, size, payload := f.read(address)
		if ok, err := may(id, payload); err != nil {
			return nil, err
		} else if !ok {
			break
		}
		bytes += size
		freed = append(freed, id)
		delete(f.Live, id)
		f.IDStart = after(id)
		next, more := f.Live[f.IDStart]
		switch {
		case f.release.PhantomStart:
			f.Start = address
		case more:
			f.Start += Offset(next-f.Start, n)
		default:
			f.Start, f.End = 0, 0
		}
	}
	if f.Start >= n {
		f.Start -= n
		f.End -= n
	}
	return freed, nil
}

// Clear frees every chunk.
func (f *FIFO) Clear() {
	f.Live = map[uint32]int{}
	f.Start, f.End = 0, 0
	if f.release.IDsRestart {
		f.IDEnd = 0
	}
	f.IDStart = f.IDEnd
}

// Header returns the header at an address, live or not. ok is false where it can't be one.
func (f *FIFO) Header(address int) (id uint32, size int, ok bool) {
	left := len(f.Memory) - Offset(address, len(f.Memory))
	if left < header {
		return 0, 0, false
	}
	signedID, size, _ := f.read(address)
	return uint32(signedID), size, size >= header && size <= left
}

// read returns the header at an address, and what stands behind it, up to the end of the chunk;
// all of it as Python reads it, which checks nothing.
func (f *FIFO) read(address int) (id, size int, payload []byte) {
	n := len(f.Memory)
	at := Offset(address, n)
	id, size = signed(f.Memory[at:]), signed(f.Memory[min(at+4, n):])
	end := at + size
	if end < 0 {
		end += n
	}
	begin := min(at+header, n)
	return id, size, f.Memory[begin:max(begin, min(end, n))]
}

// signed reads an integer of up to four bytes.
func signed(b []byte) int {
	b = b[:min(4, len(b))]
	n := 0
	for i, x := range b {
		n |= int(x) << (8 * i)
	}
	if len(b) > 0 && b[len(b)-1] >= 0x80 {
		n -= 1 << (8 * len(b))
	}
	return n
}

// Offset returns the place in n bytes that an address means, also of an address below 0.
func Offset(address, n int) int { return (address%n + n) % n }

func after(id uint32) uint32 { return (id + 1) % idLimit }
