package model

import "encoding/binary"

// storeRing is the ring of a store, with its bytes: what readers see of a chunk that was freed
// depends on what has covered it since. N is len(memory).
type storeRing struct {
	release        Release
	memory         []byte
	address        map[uint32]int64 // of the chunk of an id
	idStart, idEnd uint32
	start, end     int64 // 0.11.0 also goes below 0
}

const (
	storeHeader  = 8 // id and size, before the count of reads
	storeIDLimit = 1 << 31
)

func newStoreRing(r Release, memory []byte) *storeRing {
	ring := &storeRing{release: r, memory: memory, address: map[uint32]int64{}}
	if r.PhantomStart {
		ring.address[0] = 0
	}
	return ring
}

func (r *storeRing) size() int64 { return int64(len(r.memory)) }

// place returns where an address is in the memory, for negative ones as Python does.
func (r *storeRing) place(address int64) int64 { return (address%r.size() + r.size()) % r.size() }

// allocate writes the header of a chunk for so many bytes behind it.
func (r *storeRing) allocate(bytes int) (address int64, id uint32, ok bool) {
	s := int64(bytes) + header
	address = r.end
	if place := r.place(r.end); place+s > r.size() {
		address = r.end - place + r.size()
	}
	if address+s > r.start+r.size() {
		return 0, 0, false
	}
	id = r.idEnd
	p := r.place(address)
	binary.LittleEndian.PutUint32(r.memory[p:], id)
	binary.LittleEndian.PutUint32(r.memory[p+4:], uint32(s))
	r.address[id] = address
	r.end = address + s
	r.idEnd = (r.idEnd + 1) % storeIDLimit
	return address, id, true
}

// free frees chunks, oldest first, until limit bytes were freed or isFree reports false or an
// error. After an error the ids freed so far are not returned, as in vLLM.
func (r *storeRing) free(limit int64, isFree func(id uint32, payload []byte) (bool, error)) ([]uint32, error) {
	freed := []uint32{}
	for bytes := int64(0); bytes < limit; {
		at, ok := r.address[r.idStart]
		if !ok {
			break
		}
		_, size, payload := r.read(at)
		if ok, err := isFree(r.idStart, payload); err != nil {
			return nil, err
		} else if !ok {
			break
		}
		freed = append(freed, r.idStart)
		delete(r.address, r.idStart)
		r.idStart = (r.idStart + 1) % storeIDLimit
		next, more := r.address[r.idStart]
		switch {
		case r.release.PhantomStart:
			r.start = at
		case more:
			r.start += r.place(next - r.start)
		default:
			r.start, r.end = 0, 0
		}
		bytes += size
	}
	if r.start >= r.size() {
		r.start -= r.size()
		r.end -= r.size()
	}
	return freed, nil
}

func (r *storeRing) clear() {
	clear(r.address)
	r.start, r.end = 0, 0
	if r.release.IDsRestart {
		r.idEnd = 0
	}
	r.idStart = r.idEnd
}

// read returns the header at an address, and what stands behind it, up to the end of the chunk;
// all of it as Python reads it, which checks nothing.
func (r *storeRing) read(address int64) (id, size int64, payload []byte) {
	p := r.place(address)
	id, size = signed(r.memory[p:]), signed(r.memory[min(p+4, r.size()):])
	end := p + size
	if end < 0 {
		end += r.size()
	}
	begin := min(p+storeHeader, r.size())
	return id, size, r.memory[begin:max(begin, min(end, r.size()))]
}

// signed reads an integer of up to four bytes.
func signed(b []byte) int64 {
	b = b[:min(4, len(b))]
	var n int64
	for i, x := range b {
		n |= int64(x) << (8 * i)
	}
	if len(b) > 0 && b[len(b)-1] >= 0x80 {
		n -= 1 << (8 * len(b))
	}
	return n
}
