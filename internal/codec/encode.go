package codec

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"
)

// Encoder appends values to one main document and one list of frames. Frames
// are numbered in the order in which their arrays are encoded, from 1. The
// first error sticks; the caller looks at Err once, at the end.
type Encoder struct {
	// Elem is the key of the elem of an item that is being written, for errors.
	Elem string

	doc       []byte
	threshold int
	aux       [][]byte // nil for bytes that are only laid out
	auxLen    int
	err       error
	room      [2][]byte // for aux after Reset
}

// NewEncoder returns an Encoder that gives arrays of at least threshold bytes a
// frame of their own.
func NewEncoder(threshold int) *Encoder {
	return &Encoder{threshold: threshold, doc: make([]byte, 0, firstRoom)}
}

// firstRoom is the first capacity of a document, in bytes.
const firstRoom = 64

// Reset makes e an Encoder of NewEncoder that writes into the memory of doc from its
// beginning, as far as it suffices. The memory for the list of frames stays with e.
func (e *Encoder) Reset(threshold int, doc []byte) {
	clear(e.aux)
	clear(e.room[:]) // from which aux may have grown away
	if e.aux == nil {
		e.aux = e.room[:]
	}
	e.Elem, e.doc, e.threshold, e.aux, e.auxLen, e.err = "", doc[:0], threshold, e.aux[:0], 0, nil
}

// Append returns an Encoder that appends to a document and the frames behind it.
func Append(frames [][]byte, threshold int) *Encoder {
	e := &Encoder{threshold: threshold}
	e.resume(frames)
	return e
}

func (e *Encoder) resume(frames [][]byte) {
	e.doc, e.aux, e.auxLen = frames[0], frames[1:], 0
	for _, f := range e.aux {
		e.auxLen += len(f)
	}
}

// Splice writes a value by a function that appends to frames.
func (e *Encoder) Splice(write func(frames [][]byte) ([][]byte, error)) {
	frames, err := e.Frames()
	if err == nil {
		frames, err = write(frames)
	}
	if err != nil {
		e.Fail(err)
		return
	}
	e.resume(frames)
}

// Append writes a value by a function that appends to the main document.
func (e *Encoder) Append(write func(doc []byte) ([]byte, error)) {
	doc, err := write(e.doc)
	if err != nil {
		e.Fail(err)
		return
	}
	e.doc = doc
}

// Fail records an error if it is the first.
func (e *Encoder) Fail(err error) {
	if e.err == nil && err != nil {
		e.err = err
	}
}

// Invalid records an [InvalidError].
func (e *Encoder) Invalid(what, format string, args ...any) {
	if e.Elem != "" {
		what = fmt.Sprintf("%s of elem %.64q", what, e.Elem)
	}
	e.Fail(&InvalidError{what, fmt.Sprintf(format, args...)})
}

// Err returns the first error.
func (e *Encoder) Err() error { return e.err }

func (e *Encoder) Map(n int)       { e.doc = msgp.AppendMapHeader(e.doc, e.length(n)) }
func (e *Encoder) Array(n int)     { e.doc = msgp.AppendArrayHeader(e.doc, e.length(n)) }
func (e *Encoder) Uint(n uint64)   { e.doc = msgp.AppendUint64(e.doc, n) }
func (e *Encoder) Float(f float64) { e.doc = msgp.AppendFloat64(e.doc, f) }
func (e *Encoder) Bool(b bool)     { e.doc = msgp.AppendBool(e.doc, b) }
func (e *Encoder) Nil()            { e.doc = msgp.AppendNil(e.doc) }

// Int writes an integer as msgspec does: in the form without a sign if it has none.
func (e *Encoder) Int(n int64) {
	if n >= 0 {
		e.doc = msgp.AppendUint64(e.doc, uint64(n))
	} else {
		e.doc = msgp.AppendInt64(e.doc, n)
	}
}

// Literal writes what was encoded before.
func (e *Encoder) Literal(doc string) { e.doc = append(e.doc, doc...) }

// Map16 writes the header of a map in the form that has 16 bits of length.
func (e *Encoder) Map16(n int) { e.doc = append(e.doc, 0xde, byte(n>>8), byte(n)) }

// Text writes a string; MessagePack and msgspec allow only UTF-8.
func (e *Encoder) Text(s string) {
	if !utf8.ValidString(s) {
		e.Invalid("string", "%.64q is not UTF-8", s)
		return
	}
	e.length(len(s))
	e.doc = msgp.AppendString(e.doc, s)
}

// Bytes writes bytes, also if they are nil.
func (e *Encoder) Bytes(b []byte) {
	e.length(len(b))
	e.doc = msgp.AppendBytes(e.doc, b)
}

// Texts writes a list of strings.
func (e *Encoder) Texts(list []string) {
	e.Array(len(list))
	for _, s := range list {
		e.Text(s)
	}
}

// Tokens writes a list of integers.
func (e *Encoder) Tokens(ids []uint32) {
	e.Array(len(ids))
	doc := slices.Grow(e.doc, 3*len(ids)) // most take three bytes, the rest grows
	for _, t := range ids {
		doc = msgp.AppendUint64(doc, uint64(t))
	}
	e.doc = doc
}

// TextMap writes a map in the order of its keys, or None for nil.
func (e *Encoder) TextMap(m map[string]string) {
	if m == nil {
		e.Nil()
		return
	}
	e.Map(len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		e.Text(k)
		e.Text(m[k])
	}
}

// WriteOptional writes None for nil.
func WriteOptional[T any](e *Encoder, v *T, write func(T)) {
	if v == nil {
		e.Nil()
		return
	}
	write(*v)
}

// length refuses what MessagePack's 32-bit lengths can't express.
func (e *Encoder) length(n int) uint32 {
	if uint64(n) > math.MaxUint32 {
		e.Invalid("length", "%d is more than MessagePack can express", n)
		return 0
	}
	return uint32(n)
}

// Len returns the number of bytes that the main document has so far.
func (e *Encoder) Len() int { return len(e.doc) }

// AuxLen returns the number of bytes of the frames behind the main document.
func (e *Encoder) AuxLen() int { return e.auxLen }

// Main returns the main document as far as it is written.
func (e *Encoder) Main() []byte { return e.doc }

// Aux returns the frames behind the main document, as Frames does.
func (e *Encoder) Aux() [][]byte { return e.aux }

// Frames returns the main document and the frames behind it. A frame is nil where
// the bytes are only laid out.
func (e *Encoder) Frames() ([][]byte, error) {
	if e.err != nil {
		return nil, e.err
	}
	return append([][]byte{e.doc}, e.aux...), nil
}

// Document is Frames for messages of one frame.
func (e *Encoder) Document() ([]byte, error) {
	if e.err == nil && len(e.aux) > 0 {
		e.Invalid("tensor", "this message has one frame only; a tensor of that size needs one of its own")
	}
	if e.err != nil {
		return nil, e.err
	}
	return e.doc, nil
}

// extRaw is the extension type of raw array bytes (vllm/v1/serial_utils.py,
// CUSTOM_TYPE_RAW_VIEW).
const extRaw = 3

const maxInt = uint64(^uint(0) >> 1)

// Head writes the header of a tensor or ndarray, [dtype, shape, and data to come].
func (e *Encoder) Head(dtype string, shape []int) {
	e.Array(3)
	e.Text(dtype)
	e.Array(len(shape))
	for _, d := range shape {
		e.Int(int64(d))
	}
}

// Payload writes the third part of a tensor or ndarray, n bytes long: the bytes
// themselves if small or if inline is true, else the index of a new frame. A nil data
// leaves a hole: zeros in the main document, a nil frame. It returns where the bytes
// lie, for a frame counted from the end of the main document.
func (e *Encoder) Payload(data []byte, n int, inline bool) (offset int, isInline bool) {
	if inline || n < e.threshold && uint64(n) <= math.MaxUint32 {
		e.rawHeader(e.length(n))
		offset = len(e.doc)
		if data == nil {
			e.doc = append(e.doc, make([]byte, n)...)
		} else {
			e.doc = append(e.doc, data...)
		}
		return offset, true
	}
	offset = e.auxLen
	if uint64(e.auxLen)+uint64(n) > maxInt {
		e.Invalid("tensor", "the value has more bytes than an int can count")
		return 0, false
	}
	e.auxLen += n
	e.aux = append(e.aux, data)
	e.Int(int64(len(e.aux)))
	return offset, false
}

// rawHeader writes the header of an extension of n raw bytes.
func (e *Encoder) rawHeader(n uint32) {
	switch {
	case n == 1, n == 2, n == 4, n == 8, n == 16:
		e.doc = append(e.doc, 0xd4+byte(bits.TrailingZeros32(n)), extRaw)
	case n <= math.MaxUint8:
		e.doc = append(e.doc, 0xc7, byte(n), extRaw)
	case n <= math.MaxUint16:
		e.doc = append(e.doc, 0xc8, byte(n>>8), byte(n), extRaw)
	default:
		e.doc = append(binary.BigEndian.AppendUint32(append(e.doc, 0xc9), n), extRaw)
	}
}
