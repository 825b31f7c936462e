package sidecar

import (
	"encoding/binary"
	"hash/crc32"
	"iter"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/mem"
)

// validMark returns the mark of an entry whose body has the checksum sum. In layout 1 it
// is the checksum above 1, any checksum above 0 is free, and the use word has no check.
func validMark(version, sum uint32) uint64 {
	if version == 1 {
		return uint64(sum)<<32 | 1
	}
	return uint64(^sum)<<32 | uint64(sum)
}

func (f *File) freeMark() uint64 {
	if f.version == 1 {
		return 0
	}
	return markFree
}

// isFree says whether a mark is that of a free entry.
func (f *File) isFree(mark uint64) bool {
	if f.version == 1 {
		return uint32(mark) == 0
	}
	return mark == markFree
}

// sealUse adds the check to the use word of entry i: part of a checksum of the word
// and of i.
func (f *File) sealUse(i int, use uint64) uint64 {
	use &^= useCheck
	if f.version == 1 {
		return use
	}
	var b [12]byte
	binary.LittleEndian.PutUint64(b[:], use)
	binary.LittleEndian.PutUint32(b[8:], uint32(i))
	return use | uint64(crc32.Checksum(b[:], castagnoli))<<32&useCheck
}

// Record is an object as the sidecar records it.
type Record struct {
	Address uint64
	ID      uint32
	Size    int // bytes of the chunk with its header
	// DescriptionOffset and DescriptionLength are where in the payload the writer keeps what
	// readers have no use for: the key.
	DescriptionOffset, DescriptionLength int
	// Sum is the checksum of the payload, see PayloadSum; Full is what it was
	// called with.
	Sum  uint32
	Full bool
	// Damaged is set by Records, and ignored by Put.
	Damaged bool
}

const (
	countSize  = 4
	sampleStep = 64 << 10
	sampleSize = 64
)

// PayloadSum is the checksum (CRC-32C) of a payload without its count. If not
// full, it covers the first 64 KiB, and the front bytes with what the writer
// noted if these are more, 64 bytes at each further multiple of 64 KiB, and the
// last 64: to look at all would take longer than to write all, and memory that
// nobody writes to does not change.
func PayloadSum(payload []byte, front int, full bool) (sum uint32) {
	add := func(from, to int) { sum = crc32.Update(sum, castagnoli, payload[from:to]) }
	n := len(payload)
	head := min(max(sampleStep, front), n)
	if full {
		head = n
	}
	add(min(countSize, n), head)
	for at := (head + sampleStep - 1) / sampleStep * sampleStep; at < n; at += sampleStep {
		add(at, min(at+sampleSize, n))
	}
	if head < n {
		add(max(head, n-sampleSize), n)
	}
	return sum
}

func (f *File) entry(i int) []byte {
	at := offSlotTable + f.opt.Slots*slotSize + i*entrySize
	return f.mem[at : at+entrySize : at+entrySize]
}

// Free returns how many more objects the table has room for.
func (f *File) Free() int { return len(f.free) }

// Put records an object and returns its entry; there must be room. It is valid
// from one moment to the next, with the use. If the memory is gone, the entry stays
// free.
func (f *File) Put(r Record, use uint64) int {
	i := f.free[len(f.free)-1]
	e := f.entry(i)
	failpoint.Hit("control.put.begin")
	binary.LittleEndian.PutUint64(e[entryAddress:], r.Address)
	binary.LittleEndian.PutUint32(e[entryID:], r.ID)
	binary.LittleEndian.PutUint32(e[entryLength:], uint32(r.Size))
	failpoint.Hit("control.put.half")
	binary.LittleEndian.PutUint32(e[entryDescriptionOffset:], uint32(r.DescriptionOffset))
	binary.LittleEndian.PutUint32(e[entryDescriptionLength:], uint32(r.DescriptionLength))
	binary.LittleEndian.PutUint32(e[entrySum:], r.Sum)
	full := uint32(0)
	if r.Full {
		full = 1
	}
	binary.LittleEndian.PutUint32(e[entryFull:], full)
	mem.Store64(e[entryUse:], f.sealUse(i, use))
	mark := validMark(f.version, crc32.Checksum(e[entryBody:entryEnd], castagnoli))
	failpoint.Hit("control.put.summed")
	mem.Fence()
	mem.Store64(e[entryMark:], mark)
	f.free = f.free[:len(f.free)-1]
	failpoint.Hit("control.put.end")
	return i
}

// Drop frees entry i by one store. If the memory is gone, the entry stays used.
func (f *File) Drop(i int) {
	failpoint.Hit("control.drop.begin")
	mem.Store64(f.entry(i)[entryMark:], f.freeMark())
	failpoint.Hit("control.drop.end")
	f.free = append(f.free, i)
}

// SetUse keeps a word of the writer's with an object. It is one store. Bits 32 to
// 61 are not the writer's: the check is there.
func (f *File) SetUse(i int, use uint64) {
	failpoint.Hit("control.use.begin")
	mem.Store64(f.entry(i)[entryUse:], f.sealUse(i, use))
	failpoint.Hit("control.use.end")
}

// Use returns the word set by SetUse; ok is false if its check says that it can't be
// that. Layout 1 has no check but that bits 32 to 61 are 0.
func (f *File) Use(i int) (use uint64, ok bool) {
	word := mem.Load64(f.entry(i)[entryUse:])
	return word &^ useCheck, word == f.sealUse(i, word)
}

// Records yields every entry that is not free, with Damaged set where it can't be
// right: its checksum is wrong, or its mark is neither that of an object nor that of a
// free entry. Entries that are not yielded become free.
func (f *File) Records() iter.Seq2[int, Record] {
	return func(yield func(int, Record) bool) {
		var free []int
		defer func() { f.free = free }()
		for i := f.opt.Objects - 1; i >= 0; i-- {
			e := f.entry(i)
			mark := mem.Load64(e[entryMark:])
			if f.isFree(mark) {
				free = append(free, i)
				continue
			}
			r := Record{
				Address: binary.LittleEndian.Uint64(e[entryAddress:]), ID: binary.LittleEndian.Uint32(e[entryID:]),
				Size:              int(binary.LittleEndian.Uint32(e[entryLength:])),
				DescriptionOffset: int(binary.LittleEndian.Uint32(e[entryDescriptionOffset:])), DescriptionLength: int(binary.LittleEndian.Uint32(e[entryDescriptionLength:])),
				Sum: binary.LittleEndian.Uint32(e[entrySum:]), Full: binary.LittleEndian.Uint32(e[entryFull:]) == 1,
				Damaged: mark != validMark(f.version, crc32.Checksum(e[entryBody:entryEnd], castagnoli)),
			}
			if !yield(i, r) {
				return
			}
		}
	}
}
