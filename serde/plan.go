package serde

import (
	"math"

	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/pycompat"
)

// Plan is a value encoded as far as possible without touching the bytes of its
// tensors: main document, metadata and the place of every tensor. It keeps the
// Data slices that the tensors had when it was made.
//
// The zero value is empty, and [Plan.Reset] fills it. The fields belong to the Plan and
// must not be changed, nor may a Plan be copied: fields point into it.
type Plan struct {
	// Metadata is the metadata pickle, byte for byte CPython's.
	Metadata []byte
	// DataLen is the number of bytes of all frames, Python's nbytes.
	DataLen int
	// Tensors has the place of every tensor, in encoding order.
	Tensors []Placement

	main []byte // in doc, or a Pickle
	doc  []byte // the main document and behind it the metadata
	full bool

	e    encoder
	mp   codec.Encoder
	room [3]Placement // for the tensors of usual items
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
	data   []byte // of the tensor when the Plan was made
}

// hole reports that the tensor had no Data when the Plan was made.
func (p *Placement) hole() bool { return p.data == nil && p.Len > 0 }

// planRoom is the first capacity of the document and metadata of a Plan, in bytes: a
// usual item takes 250 to 350.
const planRoom = 384

// NewPlan validates v and lays it out. It allocates the main document and the
// metadata, and copies only the tensors that lie inline. The error wraps
// [fs.ErrInvalid].
func NewPlan(v Value, o Options) (*Plan, error) {
	p := &Plan{doc: make([]byte, 0, planRoom)}
	if err := p.Reset(v, o); err != nil {
		return nil, err
	}
	return p, nil
}

// Reset makes p the Plan of v, as [NewPlan] does, in the memory that p has: what its
// fields and Frames gave before is overwritten. It allocates only what is too large for
// that memory. After an error p is empty.
func (p *Plan) Reset(v Value, o Options) error {
	p.Clear()
	m, lens := Metadata{}, [8]int64{}
	switch v := v.(type) {
	case Pickle:
		if len(v) == 0 {
			// Python takes the last 0 bytes of a chunk for all of it.
			return codec.Invalid("Pickle", "it is empty, which is no pickle")
		}
		p.main, p.DataLen, p.full = v, len(v), true
		m.Type = typePickle
	case *Item, *Tensor:
		if err := p.encode(v, o); err != nil {
			p.Clear()
			return err
		}
		m.Type, m.Lens = v.typeName(), p.lens(lens[:0])
	default:
		return codec.Invalid("value", "it is nil; use *Item, *Tensor or Pickle")
	}
	m.NBytes = int64(p.DataLen)
	n := len(p.doc)
	p.doc = AppendMetadata(p.doc, m)
	p.Metadata = p.doc[n:]
	if m.Type != typePickle {
		p.main = p.doc[:n:n]
	}
	return nil
}

// Clear makes p empty, so that it keeps nothing of a value. Its memory stays for the next.
func (p *Plan) Clear() {
	clear(p.Tensors)
	clear(p.room[:]) // from which Tensors may have grown away
	p.mp.Reset(0, nil)
	p.Tensors, p.doc = p.Tensors[:0], p.doc[:0]
	p.Metadata, p.main, p.DataLen, p.full = nil, nil, 0, false
}

// encode writes the main document to p.doc, and places the tensors.
func (p *Plan) encode(v Value, o Options) error {
	g, err := pycompat.Resolve(o.Generation)
	if err != nil {
		return err
	}
	if cap(p.Tensors) == 0 {
		p.Tensors = p.room[:0]
	}
	e, mp := &p.e, &p.mp
	mp.Reset(codec.Threshold(o.InlineThreshold), p.doc)
	*e = encoder{Encoder: mp, gen: g, places: p.Tensors, path: e.path[:0]}
	if it, ok := v.(*Item); ok {
		e.item(it)
	} else {
		e.tensor(v.(*Tensor))
	}
	p.doc, p.Tensors = mp.Main(), e.places
	if err := mp.Err(); err != nil {
		return err
	}
	if len(p.doc) > math.MaxInt-mp.AuxLen() {
		return codec.Invalid("value", "it has more bytes than an int can count")
	}
	p.DataLen, p.full = len(p.doc)+mp.AuxLen(), true
	for i := range p.Tensors {
		pl := &p.Tensors[i]
		p.full = p.full && !pl.hole()
		if !pl.Inline {
			pl.Offset += len(p.doc)
		}
	}
	return nil
}

// lens appends the lengths of the frames.
func (p *Plan) lens(dst []int64) []int64 {
	dst = append(dst, int64(len(p.doc)))
	for i := range p.Tensors {
		if pl := &p.Tensors[i]; !pl.Inline {
			dst = append(dst, int64(pl.Len))
		}
	}
	return dst
}

// Complete reports whether every tensor has its Data.
func (p *Plan) Complete() bool { return p.full }

// Frames returns the frames. The aux frames alias the Data of the tensors, and
// are nil where a tensor is only laid out; see [Plan.Complete].
func (p *Plan) Frames() [][]byte {
	f := make([][]byte, 1, 1+len(p.Tensors))
	f[0] = p.main
	for i := range p.Tensors {
		if pl := &p.Tensors[i]; !pl.Inline {
			f = append(f, pl.data)
		}
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
		if pl := &p.Tensors[i]; pl.Inline && pl.hole() {
			copy(dst[at:], p.main[at:pl.Offset])
			at = pl.Offset + pl.Len
		}
	}
	copy(dst[at:], p.main[at:])
	for i := range p.Tensors {
		if pl := &p.Tensors[i]; !pl.Inline {
			copy(dst[pl.Offset:pl.Offset+pl.Len], pl.data)
		}
	}
	return nil
}
