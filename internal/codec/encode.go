package codec

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/vmihailenco/msgpack/v5"
)

// Encoder appends values to one main document and one list of frames. Frames
// are numbered in the order in which their arrays are encoded, from 1. The
// first error sticks; the caller looks at Err once, at the end.
type Encoder struct {
	// Elem is the key of the elem of an item that is being written, for errors.
	Elem string

	buf       bytes.Buffer
	mp        *msgpack.Encoder
	threshold int
	aux       [][]byte // nil for bytes that are only laid out
	auxLen    int
	err       error
}

// NewEncoder returns an Encoder that gives arrays of at least threshold bytes a
// frame of their own.
func NewEncoder(threshold int) *Encoder {
	e := &Encoder{threshold: threshold}
	e.mp = msgpack.NewEncoder(&e.buf)
	return e
}

// Append returns an Encoder that appends to a document and the frames behind it.
func Append(frames [][]byte, threshold int) *Encoder {
	e := &Encoder{threshold: threshold}
	e.mp = msgpack.NewEncoder(&e.buf)
	e.resume(frames)
	return e
}

func (e *Encoder) resume(frames [][]byte) {
	e.buf, e.aux, e.auxLen = *bytes.NewBuffer(frames[0]), frames[1:], 0
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

func (e *Encoder) Map(n int)       { e.Fail(e.mp.EncodeMapLen(e.length(n))) }
func (e *Encoder) Array(n int)     { e.Fail(e.mp.EncodeArrayLen(e.length(n))) }
func (e *Encoder) Int(n int64)     { e.Fail(e.mp.EncodeInt(n)) }
func (e *Encoder) Uint(n uint64)   { e.Fail(e.mp.EncodeUint(n)) }
func (e *Encoder) Float(f float64) { e.Fail(e.mp.EncodeFloat64(f)) }
func (e *Encoder) Bool(b bool)     { e.Fail(e.mp.EncodeBool(b)) }
func (e *Encoder) Nil()            { e.Fail(e.mp.EncodeNil()) }

// Map16 writes the header of a map in the form that has 16 bits of length.
func (e *Encoder) Map16(n int) { e.buf.Write([]byte{0xde, byte(n >> 8), byte(n)}) }

// Text writes a string; MessagePack and msgspec allow only UTF-8.
func (e *Encoder) Text(s string) {
	if !utf8.ValidString(s) {
		e.Invalid("string", "%.64q is not UTF-8", s)
		return
	}
	e.length(len(s))
	e.Fail(e.mp.EncodeString(s))
}

// Bytes writes bytes, also if they are nil.
func (e *Encoder) Bytes(b []byte) {
	e.Fail(e.mp.EncodeBytesLen(e.length(len(b))))
	e.buf.Write(b)
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
	for _, t := range ids {
		e.Int(int64(t))
	}
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
func (e *Encoder) length(n int) int {
	if uint64(n) > math.MaxUint32 {
		e.Invalid("length", "%d is more than MessagePack can express", n)
		return 0
	}
	return n
}

// Len returns the number of bytes that the main document has so far.
func (e *Encoder) Len() int { return e.buf.Len() }

// AuxLen returns the number of bytes of the frames behind the main document.
func (e *Encoder) AuxLen() int { return e.auxLen }

// Frames returns the main document and the frames behind it. A frame is nil where
// the bytes are only laid out.
func (e *Encoder) Frames() ([][]byte, error) {
	if e.err != nil {
		return nil, e.err
	}
	return append([][]byte{e.buf.Bytes()}, e.aux...), nil
}

// Document is Frames for messages of one frame.
func (e *Encoder) Document() ([]byte, error) {
	if e.err == nil && len(e.aux) > 0 {
		e.Invalid("tensor", "this message has one frame only; a tensor of that size needs one of its own")
	}
	if e.err != nil {
		return nil, e.err
	}
	return e.buf.Bytes(), nil
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
		e.Fail(e.mp.EncodeExtHeader(extRaw, e.length(n)))
		offset = e.buf.Len()
		if data == nil {
			e.buf.Grow(n)
			data = e.buf.AvailableBuffer()[:n]
			clear(data)
		}
		e.buf.Write(data)
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
