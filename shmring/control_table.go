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
//	0       4      1 if valid, else 0; stored last
//	4       4      checksum (CRC-32C) of bytes 8 to 40
//	8       8      address
//	16      4      id
//	20      4      size of the chunk with its header
//	24      4      offset of the note in the payload
//	28      4      bytes of the note
//	32      4      checksum (CRC-32C) of the payload, see Sum
//	36      4      1 if that covers every byte, else 0
//	40      8      use, see SetUse
const (
	entrySum  = 4
	entryBody = 8
	entryEnd  = 40
	entryUse  = 40
)

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
// from one moment to the next, with the use.
func (c *Control) Put(r Record, use uint64) int {
	i := c.free[len(c.free)-1]
	c.free = c.free[:len(c.free)-1]
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
	mem.Store64(e[entryUse:], use)
	binary.LittleEndian.PutUint32(e[entrySum:], crc32.Checksum(e[entryBody:entryEnd], castagnoli))
	failpoint.Hit("control.put.summed")
	mem.Fence()
	mem.Store32(e, 1)
	failpoint.Hit("control.put.end")
	return i
}

// Drop forgets the object of an entry.
func (c *Control) Drop(i int) {
	failpoint.Hit("control.drop.begin")
	c.free = append(c.free, i)
	mem.Store32(c.entry(i), 0)
	failpoint.Hit("control.drop.end")
}

// SetUse keeps a word of the writer's with an object. It is one store.
func (c *Control) SetUse(i int, use uint64) {
	failpoint.Hit("control.use.begin")
	mem.Store64(c.entry(i)[entryUse:], use)
	failpoint.Hit("control.use.end")
}

// Use returns the word set by SetUse.
func (c *Control) Use(i int) uint64 { return mem.Load64(c.entry(i)[entryUse:]) }

// Records yields every entry that is marked valid; ok is false where the
// checksum says that it can't be. Entries that are not yielded become free.
func (c *Control) Records() iter.Seq2[int, RecordOrBad] {
	return func(yield func(int, RecordOrBad) bool) {
		c.free = c.free[:0]
		for i := c.opt.Objects - 1; i >= 0; i-- {
			e := c.entry(i)
			if mem.Load32(e) == 0 {
				c.free = append(c.free, i)
				continue
			}
			r := Record{
				Address: binary.LittleEndian.Uint64(e[8:]), ID: binary.LittleEndian.Uint32(e[16:]),
				Size:       int(binary.LittleEndian.Uint32(e[20:])),
				NoteOffset: int(binary.LittleEndian.Uint32(e[24:])), NoteLen: int(binary.LittleEndian.Uint32(e[28:])),
				Sum: binary.LittleEndian.Uint32(e[32:]), Full: binary.LittleEndian.Uint32(e[36:]) == 1,
			}
			ok := mem.Load32(e[entrySum:]) == crc32.Checksum(e[entryBody:entryEnd], castagnoli)
			if !yield(i, RecordOrBad{r, ok}) {
				return
			}
		}
	}
}

// RecordOrBad is an entry that is marked valid.
type RecordOrBad struct {
	Record
	OK bool // its checksum is right
}
