package serde

import (
	"encoding/binary"
	"math/bits"
)

// Metadata is the tuple in front of the data of a chunk
// (MsgpackSerde in vllm/distributed/device_communicators/shm_object_storage.py,
// the same in all releases).
type Metadata struct {
	// Type is the Python class name: "MultiModalKwargsItem", "Tensor" or
	// "bytes".
	Type string
	// NBytes is the number of data bytes.
	NBytes int64
	// Lens are the lengths of the frames in bytes; nil stands for None, which
	// "bytes" has.
	Lens []int64
}

// Pickle opcodes of the subset.
const (
	opMark            = '('
	opStop            = '.'
	opBinInt          = 'J'
	opBinInt1         = 'K'
	opBinInt2         = 'M'
	opNone            = 'N'
	opBinUnicode      = 'X'
	opEmptyList       = ']'
	opAppend          = 'a'
	opAppends         = 'e'
	opTuple           = 't'
	opProto           = 0x80
	opTuple3          = 0x87
	opLong1           = 0x8a
	opShortBinUnicode = 0x8c
	opMemoize         = 0x94
	opFrame           = 0x95
)

const (
	frameHeader = 9       // opFrame and a 64-bit length
	frameTarget = 1 << 16 // CPython starts a new frame at the first object behind this
	listBatch   = 1000    // CPython appends list items in batches of this many
)

// AppendMetadata appends m as CPython's pickle.dumps(..., protocol=5) writes it,
// byte for byte.
func AppendMetadata(dst []byte, m Metadata) []byte {
	w := pickler{out: append(dst, opProto, 5)}
	w.beginFrame()
	w.object() // the tuple
	w.object()
	w.str(m.Type)
	w.object()
	w.int(m.NBytes)
	w.object()
	if m.Lens == nil {
		w.op(opNone)
	} else {
		w.list(m.Lens)
	}
	w.op(opTuple3, opMemoize, opStop)
	w.endFrame()
	return w.out
}

type pickler struct {
	out   []byte
	frame int // where the open frame's header starts
}

func (w *pickler) op(b ...byte) { w.out = append(w.out, b...) }

func (w *pickler) beginFrame() {
	w.frame = len(w.out)
	w.op(opFrame, 0, 0, 0, 0, 0, 0, 0, 0)
}

func (w *pickler) endFrame() {
	binary.LittleEndian.PutUint64(w.out[w.frame+1:], uint64(len(w.out)-w.frame-frameHeader))
}

// object marks the start of an object, the only place where CPython may end a
// frame.
func (w *pickler) object() {
	if len(w.out)-w.frame-frameHeader >= frameTarget {
		w.endFrame()
		w.beginFrame()
	}
}

func (w *pickler) str(s string) {
	if len(s) < 256 {
		w.op(opShortBinUnicode, byte(len(s)))
	} else {
		w.op(opBinUnicode)
		w.out = binary.LittleEndian.AppendUint32(w.out, uint32(len(s)))
	}
	w.out = append(w.out, s...)
	w.op(opMemoize)
}

func (w *pickler) int(n int64) {
	switch {
	case n >= 0 && n < 1<<8:
		w.op(opBinInt1, byte(n))
	case n >= 0 && n < 1<<16:
		w.op(opBinInt2, byte(n), byte(n>>8))
	case int64(int32(n)) == n:
		w.op(opBinInt)
		w.out = binary.LittleEndian.AppendUint32(w.out, uint32(n))
	default:
		// The fewest bytes of two's complement that keep the sign.
		size := bits.Len64(uint64(n^(n>>63)))/8 + 1
		w.op(opLong1, byte(size))
		for i := range size {
			w.op(byte(n >> (8 * i)))
		}
	}
}

func (w *pickler) list(lens []int64) {
	w.op(opEmptyList, opMemoize)
	if len(lens) == 1 {
		// Only a list of one; the last batch of a longer one, also if it has one
		// item, is like the others.
		w.object()
		w.int(lens[0])
		w.op(opAppend)
		return
	}
	for len(lens) > 0 {
		batch := lens[:min(len(lens), listBatch)]
		lens = lens[len(batch):]
		w.op(opMark)
		for _, n := range batch {
			w.object()
			w.int(n)
		}
		w.op(opAppends)
	}
}
