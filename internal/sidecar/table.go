package sidecar

import (
	"encoding/binary"
	"hash/crc32"
	"iter"
	"time"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/mem"
)

// validMark returns the mark of an entry whose body has the checksum sum.
func validMark(sum uint32) uint64 { return uint64(^sum)<<32 | uint64(sum) }

// table is the part of a sidecar that has an entry for each object. The writer must serialize the
// calls of its methods.
type table struct {
	*mapping
	free []uint32 // free entries, the next one last; has room for all of them
}

// Record describes an object of a segment in the table.
type Record struct {
	Address uint64 // of the chunk
	ID      uint32
	Size    int // bytes of the chunk with its header
	// DescriptionOffset and DescriptionLength are the place, in the payload, of what only writers need:
	// the key, for example.
	DescriptionOffset, DescriptionLength int
	// Sum is the [PayloadSum] of the payload, and Full the argument full of that call.
	Sum  uint32
	Full bool
	// Damaged reports that the entry is neither valid nor free. Records sets it, and Put
	// ignores it.
	Damaged bool
}

func (t *table) entry(i int) []byte {
	at := slotOffset(t.opt.Slots) + i*entrySize
	return t.mem[at : at+entrySize : at+entrySize]
}

// Free returns the number of free entries.
func (t *table) Free() int { return len(t.free) }

// Put records an object with its use word and returns the number of its entry; there must
// be a free one. The entry becomes valid by one store. If the memory is gone, the entry stays
// free.
func (t *table) Put(r Record, use uint64) int {
	i := int(t.free[len(t.free)-1])
	e := t.entry(i)
	failpoint.Hit("sidecar.put.begin")
	binary.LittleEndian.PutUint64(e[entryAddress:], r.Address)
	binary.LittleEndian.PutUint32(e[entryID:], r.ID)
	binary.LittleEndian.PutUint32(e[entryLength:], uint32(r.Size))
	failpoint.Hit("sidecar.put.half")
	binary.LittleEndian.PutUint32(e[entryDescriptionOffset:], uint32(r.DescriptionOffset))
	binary.LittleEndian.PutUint32(e[entryDescriptionLength:], uint32(r.DescriptionLength))
	binary.LittleEndian.PutUint32(e[entrySum:], r.Sum)
	full := uint32(0)
	if r.Full {
		full = 1
	}
	binary.LittleEndian.PutUint32(e[entryFull:], full)
	mem.Store64(e[entryUse:], t.sealUse(i, use))
	mem.Store64(e[entryTime:], uint64(time.Now().UnixNano()))
	mark := validMark(crc32.Checksum(e[entryBody:entryEnd], castagnoli))
	failpoint.Hit("sidecar.put.summed")
	mem.Fence()
	mem.Store64(e[entryMark:], mark)
	t.free = t.free[:len(t.free)-1]
	failpoint.Hit("sidecar.put.end")
	return i
}

// Drop frees entry i by one store. If the memory is gone, the entry stays in use.
func (t *table) Drop(i int) {
	failpoint.Hit("sidecar.drop.begin")
	mem.Store64(t.entry(i)[entryMark:], markFree)
	failpoint.Hit("sidecar.drop.end")
	t.free = append(t.free, uint32(i))
}

// SetUse stores the use word of entry i, by one store. The writer is free to choose bits 0
// to 31, 62 and 63; the others contain a check.
func (t *table) SetUse(i int, use uint64) {
	failpoint.Hit("sidecar.use.begin")
	mem.Store64(t.entry(i)[entryUse:], t.sealUse(i, use))
	failpoint.Hit("sidecar.use.end")
}

// Use returns the use word of entry i without its check; ok is false if the check is wrong.
func (t *table) Use(i int) (use uint64, ok bool) {
	word := mem.Load64(t.entry(i)[entryUse:])
	return word &^ useCheck, word == t.sealUse(i, word)
}

// PutTime returns when entry i was put. Nothing protects it: it is for people.
func (t *table) PutTime(i int) time.Time {
	return time.Unix(0, int64(mem.Load64(t.entry(i)[entryTime:])))
}

// Records yields the number and the content of every entry that is not free. An entry whose
// mark does not fit its checksum is Damaged. Entries that it does not yield become free.
func (t *table) Records() iter.Seq2[int, Record] {
	return func(yield func(int, Record) bool) {
		free := make([]uint32, 0, t.opt.Objects)
		defer func() { t.free = free }()
		for i := t.opt.Objects - 1; i >= 0; i-- {
			e := t.entry(i)
			mark := mem.Load64(e[entryMark:])
			if mark == markFree {
				free = append(free, uint32(i))
				continue
			}
			r := t.record(e, mark)
			if !yield(i, r) {
				return
			}
		}
	}
}

// record returns the content of an entry e, with its mark, that is not free.
func (t *table) record(e []byte, mark uint64) Record {
	return Record{
		Address: binary.LittleEndian.Uint64(e[entryAddress:]), ID: binary.LittleEndian.Uint32(e[entryID:]),
		Size:              int(binary.LittleEndian.Uint32(e[entryLength:])),
		DescriptionOffset: int(binary.LittleEndian.Uint32(e[entryDescriptionOffset:])),
		DescriptionLength: int(binary.LittleEndian.Uint32(e[entryDescriptionLength:])),
		Sum:               binary.LittleEndian.Uint32(e[entrySum:]),
		Full:              binary.LittleEndian.Uint32(e[entryFull:]) == 1,
		Damaged:           mark != validMark(crc32.Checksum(e[entryBody:entryEnd], castagnoli)),
	}
}
