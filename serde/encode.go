package serde

import (
	"bytes"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/ringcache/ringcache/pycompat"
)

// encoder appends values to one main document and one list of frames. Frames
// are numbered in the order in which their tensors are encoded, from 1. The
// first error sticks; the caller looks at err once, at the end.
type encoder struct {
	buf       bytes.Buffer
	mp        *msgpack.Encoder
	gen       *pycompat.Generation
	threshold int
	aux       [][]byte // nil for a tensor that is only laid out
	auxLen    int
	places    []Placement
	key       string // of the elem at hand, for errors and placements
	path      []int  // the way to the tensor at hand through nested lists
	anyParams bool   // parameters of other names than the generation's may go
	err       error
}

func newEncoder(o Options) *encoder {
	g, err := pycompat.Resolve(o.Generation)
	if err != nil {
		g = pycompat.Newest() // what is encoded by it is not returned
	}
	e := &encoder{gen: g, threshold: o.threshold(), err: err}
	e.mp = msgpack.NewEncoder(&e.buf)
	return e
}

// keep records the first error.
func (e *encoder) keep(err error) {
	if e.err == nil && err != nil {
		e.err = err
	}
}

func (e *encoder) invalid(what, format string, args ...any) {
	if e.key != "" {
		what = fmt.Sprintf("%s of elem %.64q", what, e.key)
	}
	e.keep(&InvalidError{what, fmt.Sprintf(format, args...)})
}

func (e *encoder) mapLen(n int)    { e.keep(e.mp.EncodeMapLen(e.length(n))) }
func (e *encoder) array(n int)     { e.keep(e.mp.EncodeArrayLen(e.length(n))) }
func (e *encoder) integer(n int64) { e.keep(e.mp.EncodeInt(n)) }
func (e *encoder) boolean(b bool)  { e.keep(e.mp.EncodeBool(b)) }
func (e *encoder) null()           { e.keep(e.mp.EncodeNil()) }

// str writes a string; MessagePack and msgspec allow only UTF-8.
func (e *encoder) str(s string) {
	if !utf8.ValidString(s) {
		e.invalid("string", "%.64q is not UTF-8", s)
		return
	}
	e.length(len(s))
	e.keep(e.mp.EncodeString(s))
}

// length refuses what MessagePack's 32-bit lengths cannot say.
func (e *encoder) length(n int) int {
	if uint64(n) > math.MaxUint32 {
		e.invalid("length", "%d is more than MessagePack can express", n)
		return 0
	}
	return n
}

// frames returns the main document and the aux frames behind it.
func (e *encoder) frames() (Frames, error) {
	if e.err != nil {
		return nil, e.err
	}
	return append(Frames{e.buf.Bytes()}, e.aux...), nil
}

// extRaw is the extension type of raw array bytes (vllm/v1/serial_utils.py,
// CUSTOM_TYPE_RAW_VIEW).
const extRaw = 3

// payload writes the third part of a tensor or ndarray, n bytes long: the bytes
// themselves if small, else the index of a new frame. A nil data leaves a hole:
// zeros in the main document, a nil frame. It returns where the bytes lie, for
// a frame counted from the end of the main document.
func (e *encoder) payload(data []byte, n int, inline bool) (offset int, isInline bool) {
	if inline || n < e.threshold && uint64(n) <= math.MaxUint32 {
		e.keep(e.mp.EncodeExtHeader(extRaw, e.length(n)))
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
		e.invalid("tensor", "the value has more bytes than an int can count")
		return 0, false
	}
	e.auxLen += n
	e.aux = append(e.aux, data)
	e.integer(int64(len(e.aux)))
	return offset, false
}

// tensor writes [dtype, shape, data].
func (e *encoder) tensor(t *Tensor) {
	if t == nil {
		e.invalid("tensor", "it is a nil *Tensor; use a nil Data for None")
		return
	}
	n, err := t.check()
	if err != nil {
		var problem string
		if ie, ok := err.(*InvalidError); ok {
			problem = ie.Problem
		}
		e.invalid("tensor", "%s", problem)
		return
	}
	e.head(string(t.DType), t.Shape)
	off, inline := e.payload(t.Data, n, false)
	p := Placement{Key: e.key, Tensor: t, Offset: off, Len: n, Inline: inline, hole: t.Data == nil && n > 0}
	if len(e.path) > 0 {
		p.Path = append(p.Path, e.path...)
	}
	e.places = append(e.places, p)
}

func (e *encoder) head(dtype string, shape []int) {
	e.array(3)
	e.str(dtype)
	e.array(len(shape))
	for _, d := range shape {
		e.integer(int64(d))
	}
}

// data writes the data of an elem. None is refused inside lists, where Python
// raises too.
func (e *encoder) data(d Data) {
	if d == nil {
		if len(e.path) > 0 {
			e.invalid("data", "None inside a list; vLLM allows it only as the whole data")
			return
		}
		e.null()
		return
	}
	switch d := d.(type) {
	case *Tensor:
		e.tensor(d)
	case Int:
		e.integer(int64(d))
	case Uint:
		e.keep(e.mp.EncodeUint(uint64(d)))
	case Float:
		e.keep(e.mp.EncodeFloat64(float64(d)))
	case Bool:
		e.boolean(bool(d))
	case List:
		if len(e.path) == MaxDepth {
			e.invalid("data", "lists are nested deeper than %d", MaxDepth)
			return
		}
		e.array(len(d))
		e.path = append(e.path, 0)
		for i, v := range d {
			e.path[len(e.path)-1] = i
			e.data(v)
			if e.err != nil {
				return
			}
		}
		e.path = e.path[:len(e.path)-1]
	}
}
