package shmring

import (
	"encoding/binary"
	"hash/crc32"
	"iter"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/mem"
)

// An entry of the table, 64 bytes:
//
//	offset  bytes  field
//	0       8      mark: the checksum (CRC-32C) of bytes 8 to 39 and, above it, its
//	               complement if valid, else markFree; stored last
//	8       8      address
//	16      4      id
//	20      4      size of the chunk with its header
//	24      4      offset of the note in the payload
//	28      4      bytes of the note
//	32      4      checksum (CRC-32C) of the payload, see Sum
//	36      4      1 if that covers every byte, else 0
//	40      8      use, with its own check, see SetUse
//
// In layout 1 the mark is the checksum above 1 if valid, and any checksum above 0 if
// not; the use has no check.
const (
	entryBody = 8
	entryEnd  = 40
	entryUse  = 40

	// markFree differs in 32 bits from every mark of a valid entry, whose halves
	// complement each other while these are the same. It is not 0, so that a hole
	// in the file is not taken for free entries.
	markFree = 0x45455246_45455246 // "FREEFREE"

	// useCheck are the bits of the use word that the check takes.
	useCheck = (1<<30 - 1) << 32
)

func validMark(version, sum uint32) uint64 {
	if version == 1 {
		return uint64(sum)<<32 | 1
	}
	return uint64(^sum)<<32 | uint64(sum)
}

func (c *Control) freeMark() uint64 {
	if c.version == 1 {
		return 0
	}
	return markFree
}

// isFree says whether a mark is that of a free entry.
func (c *Control) isFree(mark uint64) bool {
	if c.version == 1 {
		return uint32(mark) == 0
	}
	return mark == markFree
}

// sealUse adds the check to the use word of entry i: part of a checksum of the word
// and of i.
func (c *Control) sealUse(i int, use uint64) uint64 {
	use &^= useCheck
	if c.version == 1 {
		return use
	}
	var b [12]byte
	binary.LittleEndian.PutUint64(b[:], use)
	binary.LittleEndian.PutUint32(b[8:], uint32(i))
	return use | uint64(crc32.Checksum(b[:], castagnoli))<<32&useCheck
}

// Record is an object as the sidecar knows it.
type Record struct {
	Address uint64
	ID      uint32
	Size    int // bytes of the chunk with its header
	// NoteOffset and NoteLen say where in the payload the writer keeps what
	// readers have no use for: the key.
	NoteOffset, NoteLen int
	// Sum is the checksum of the payload, see PayloadSum; Full is what it was
	// called with.
	Sum  uint32
	Full bool
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

func (c *Control) guard(f func() error) error { return fault.Guard(f) }

func (c *Control) entry(i int) []byte {
	at := offSlotTable + c.opt.Slots*slotSize + i*entrySize
	return c.mem[at : at+entrySize : at+entrySize]
}

// Free returns how many more objects the table has room for.
func (c *Control) Free() int { return len(c.free) }

// Put records an object and returns its entry; there must be room. It is valid
// from one moment to the next, with the use. If the memory is gone, the entry stays
// free.
func (c *Control) Put(r Record, use uint64) int {
	i := c.free[len(c.free)-1]
	e := c.entry(i)
	failpoint.Hit("control.put.begin")
	binary.LittleEndian.PutUint64(e[8:], r.Address)
	binary.LittleEndian.PutUint32(e[16:], r.ID)
	binary.LittleEndian.PutUint32(e[20:], uint32(r.Size))
	failpoint.Hit("control.put.half")
	binary.LittleEndian.PutUint32(e[24:], uint32(r.NoteOffset))
	binary.LittleEndian.PutUint32(e[28:], uint32(r.NoteLen))
	binary.LittleEndian.PutUint32(e[32:], r.Sum)
	full := uint32(0)
	if r.Full {
		full = 1
	}
	binary.LittleEndian.PutUint32(e[36:], full)
	mem.Store64(e[entryUse:], c.sealUse(i, use))
	mark := validMark(c.version, crc32.Checksum(e[entryBody:entryEnd], castagnoli))
	failpoint.Hit("control.put.summed")
	mem.Fence()
	mem.Store64(e, mark)
	c.free = c.free[:len(c.free)-1]
	failpoint.Hit("control.put.end")
	return i
}

// Invalidate makes an entry one that no object has, in one store. It can be used
// again once it is released.
func (c *Control) Invalidate(i int) {
	failpoint.Hit("control.drop.begin")
	mem.Store64(c.entry(i), c.freeMark())
	failpoint.Hit("control.drop.end")
}

// Release gives back an entry that was invalidated. It does not touch the memory.
func (c *Control) Release(i int) { c.free = append(c.free, i) }

// SetUse keeps a word of the writer's with an object. It is one store. Bits 32 to
// 61 are not the writer's: the check is there.
func (c *Control) SetUse(i int, use uint64) {
	failpoint.Hit("control.use.begin")
	mem.Store64(c.entry(i)[entryUse:], c.sealUse(i, use))
	failpoint.Hit("control.use.end")
}

// Use returns the word set by SetUse; ok is false if its check says that it can't be
// that. Layout 1 has no check but that bits 32 to 61 are 0.
func (c *Control) Use(i int) (use uint64, ok bool) {
	word := mem.Load64(c.entry(i)[entryUse:])
	return word &^ useCheck, word == c.sealUse(i, word)
}

// Records yields every entry that is not free; OK is false where it can't be right:
// its checksum is wrong, or its mark is neither that of an object nor that of a free
// entry. Entries that are not yielded become free.
func (c *Control) Records() iter.Seq2[int, RecordOrBad] {
	return func(yield func(int, RecordOrBad) bool) {
		var free []int
		defer func() { c.free = free }()
		for i := c.opt.Objects - 1; i >= 0; i-- {
			e := c.entry(i)
			mark := mem.Load64(e)
			if c.isFree(mark) {
				free = append(free, i)
				continue
			}
			r := Record{
				Address: binary.LittleEndian.Uint64(e[8:]), ID: binary.LittleEndian.Uint32(e[16:]),
				Size:       int(binary.LittleEndian.Uint32(e[20:])),
				NoteOffset: int(binary.LittleEndian.Uint32(e[24:])), NoteLen: int(binary.LittleEndian.Uint32(e[28:])),
				Sum: binary.LittleEndian.Uint32(e[32:]), Full: binary.LittleEndian.Uint32(e[36:]) == 1,
			}
			ok := mark == validMark(c.version, crc32.Checksum(e[entryBody:entryEnd], castagnoli))
			if !yield(i, RecordOrBad{r, ok}) {
				return
			}
		}
	}
}

// RecordOrBad is an entry that is not free.
type RecordOrBad struct {
	Record
	OK bool // its mark and its checksum are right
}
