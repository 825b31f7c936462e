package serde

import (
	"math"

	"github.com/ringcache/ringcache/internal/codec"
)

// Plan is a value encoded as far as possible without touching the bytes of its
// tensors: main document, metadata and the place of every tensor. It keeps the
// Data slices that the tensors had when it was made.
//
// The fields belong to the Plan and must not be changed.
type Plan struct {
	// Metadata is the metadata pickle, byte for byte CPython's.
	Metadata []byte
	// DataLen is the number of bytes of all frames, Python's nbytes.
	DataLen int
	// Tensors has the place of every tensor, in encoding order.
	Tensors []Placement

	main []byte
	aux  []span
	full bool
}

// span is one aux frame.
type span struct {
	data []byte // nil: a hole
	n    int
}

// Placement is where the bytes of one tensor lie.
type Placement struct {
	// Key is that of the elem, empty for a value that is a tensor itself.
	Key string
	// Path leads to the tensor through nested lists: the index at each level.
	// It is empty when the tensor is the whole data.
	Path   []int
	Tensor *Tensor
	// Offset and Len give the place in bytes, counted from the start of the
	// data, that is of what [Plan.CopyTo] writes.
	Offset, Len int
	// Inline reports that the tensor lies inside the main document.
	Inline bool
	hole   bool // no Data when the Plan was made
}

// NewPlan validates v and lays it out. It allocates the main document and the
// metadata, and copies only the tensors that lie inline. The error wraps
// [fs.ErrInvalid].
func NewPlan(v Value, o Options) (*Plan, error) {
	if p, ok := v.(Pickle); ok {
		return planPickle(p)
	}
	e, err := newEncoder(o)
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case *Item:
		e.item(v)
	case *Tensor:
		e.tensor(v)
	default:
		return nil, codec.Invalid("value", "it is nil; use *Item, *Tensor or Pickle")
	}
	frames, err := e.Frames()
	if err != nil {
		return nil, err
	}
	p := &Plan{main: frames[0], Tensors: e.places, full: true}
	m := Metadata{Type: v.typeName(), Lens: make([]int64, 1, len(frames))}
	m.Lens[0] = int64(len(p.main))
	for i := range p.Tensors {
		pl := &p.Tensors[i]
		p.full = p.full && !pl.hole
		if pl.Inline {
			continue
		}
		pl.Offset += len(p.main)
		p.aux = append(p.aux, span{pl.Tensor.Data, pl.Len})
		m.Lens = append(m.Lens, int64(pl.Len))
	}
	if len(p.main) > math.MaxInt-e.AuxLen() {
		return nil, codec.Invalid("value", "it has more bytes than an int can count")
	}
	p.DataLen = len(p.main) + e.AuxLen()
	m.NBytes = int64(p.DataLen)
	p.Metadata = AppendMetadata(nil, m)
	return p, nil
}

func planPickle(b Pickle) (*Plan, error) {
	if len(b) == 0 {
		// Python takes the last 0 bytes of a chunk for all of it.
		return nil, codec.Invalid("Pickle", "it is empty, which is no pickle")
	}
	m := Metadata{Type: typePickle, NBytes: int64(len(b))}
	return &Plan{Metadata: AppendMetadata(nil, m), DataLen: len(b), main: b, full: true}, nil
}

// Complete reports whether every tensor has its Data.
func (p *Plan) Complete() bool { return p.full }

// Frames returns the frames. The aux frames alias the Data of the tensors, and
// are nil where a tensor is only laid out; see [Plan.Complete].
func (p *Plan) Frames() [][]byte {
	f := make([][]byte, 1, 1+len(p.aux))
	f[0] = p.main
	for _, a := range p.aux {
		f = append(f, a.data)
	}
	return f
}

// CopyTo writes all frames, one behind the other, to dst, which must be DataLen
// bytes long. The bytes of tensors without Data are left as they are; the
// caller fills them through dst, at the places that Tensors gives.
func (p *Plan) CopyTo(dst []byte) error {
	if len(dst) != p.DataLen {
		return codec.Invalid("value", "the destination has %d bytes, DataLen is %d", len(dst), p.DataLen)
	}
	at := 0
	for i := range p.Tensors {
		if pl := &p.Tensors[i]; pl.Inline && pl.hole {
			copy(dst[at:], p.main[at:pl.Offset])
			at = pl.Offset + pl.Len
		}
	}
	copy(dst[at:], p.main[at:])
	at = len(p.main)
	for _, a := range p.aux {
		copy(dst[at:at+a.n], a.data)
		at += a.n
	}
	return nil
}
