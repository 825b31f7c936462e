package objstore

import (
	"bytes"
	"slices"

	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/serde"
)

// decoded is a decoded object without the bytes of its tensors. Decoding depends only on
// the metadata pickle and the main document, apart from where they are; so a chunk with the
// same two has the same layout.
//
// A layout does not change once it was made. Views share its names, shapes and slices.
// See docs/decisions.md, "A reader remembers results, and trusts none of them".
type decoded struct {
	metadata []byte // nil: the layout is not remembered
	document []byte
	dataLen  int

	value   serde.Value // its tensors have no data; nil: a pickle
	tensors []span      // in the order of the value
}

// span is where the bytes of a tensor are in the data of its chunk.
type span struct {
	tensor      *serde.Tensor // without data
	offset, len int
}

// newDecoded makes the layout of a value that was decoded from data, which is not
// remembered. The value belongs to the layout from then on.
func newDecoded(v serde.Value, data []byte) *decoded {
	l := &decoded{dataLen: len(data)}
	l.set(v, data)
	return l
}

// set makes a layout that of a value. The tensors are in data or, those of the main
// document, in the layout's own copy.
func (l *decoded) set(v serde.Value, data []byte) {
	switch v := v.(type) {
	case *serde.Item:
		l.value = v
		l.tensors = make([]span, 0, len(v.Elems))
		for i := range v.Elems {
			l.add(v.Elems[i].Data, data)
		}
	case *serde.Tensor:
		l.value = v
		l.add(v, data)
	}
}

func (l *decoded) add(d any, data []byte) {
	switch d := d.(type) {
	case *serde.Tensor:
		offset, inside := mem.Offset(l.document, mem.Addr(d.Data)) // which is the start of the data
		if !inside {
			offset, inside = mem.Offset(data, mem.Addr(d.Data))
		}
		switch {
		case len(d.Data) == 0:
			offset = 0
		case !inside:
			panic("objstore: the decoder gave a tensor bytes that are not its chunk's")
		}
		l.tensors = append(l.tensors, span{d, offset, len(d.Data)})
		d.Data = nil
	case []any:
		for _, d := range d {
			l.add(d, data)
		}
	}
}

// The most bytes of a document, of the metadata and of a key that is remembered.
const (
	maxDocument = 2048
	maxMetadata = 512
	maxKey      = 512
)

// rememberable returns the layout of a chunk that may be remembered, with the data of the
// chunk, and nil for any other chunk, one that can't be decoded among them: a layout that
// takes much memory is not remembered.
//
// What is decoded is the copy that the layout keeps. Something may write to the chunk
// meanwhile, and a layout must never be kept with bytes that mean another one.
func rememberable(payload []byte, o serde.Options) (*decoded, []byte) {
	payload = payload[countSize:]
	var metadata [maxMetadata]byte
	m, n, err := serde.ParseMetadata(metadata[:copy(metadata[:], payload)])
	if err != nil || len(m.Lens) == 0 || m.Lens[0] > maxDocument || m.NBytes > int64(len(payload)-n) {
		return nil, nil
	}
	data := payload[len(payload)-int(m.NBytes):]
	l := &decoded{metadata: bytes.Clone(metadata[:n]), document: bytes.Clone(data[:m.Lens[0]]), dataLen: len(data)}
	frames, rest := [][]byte{l.document}, data[m.Lens[0]:]
	for _, n := range m.Lens[1:] { // which sum up to NBytes
		frames = append(frames, rest[:n:n])
		rest = rest[n:]
	}
	var v serde.Value
	switch m.Type { // see serde.Metadata
	case "MultiModalKwargsItem":
		v, err = serde.DecodeItem(frames, o)
	case "Tensor":
		v, err = serde.DecodeTensor(frames, o)
	default:
		return nil, nil
	}
	if err != nil {
		return nil, nil
	}
	l.set(v, data)
	return l, data
}

// remembered reports whether the layout can be found again.
func (l *decoded) remembered() bool { return l.metadata != nil }

// of returns the layout and the data of a chunk, if the chunk has this layout: decoding it
// would give the same.
func (l *decoded) of(payload []byte) (*decoded, []byte) {
	if payload = payload[countSize:]; l == nil || !l.remembered() || len(payload)-len(l.metadata) < l.dataLen {
		return nil, nil
	}
	data := payload[len(payload)-l.dataLen:]
	if !bytes.Equal(payload[:len(l.metadata)], l.metadata) || !bytes.Equal(data[:len(l.document)], l.document) {
		return nil, nil
	}
	return l, data
}

// shown is the value of a view, and the memory it is in, which the next value of the view
// uses again.
type shown struct {
	value serde.Value
	item  serde.Item
	elems []serde.Elem
	// tensors has room for one at least. While the program can reach one of them, or the
	// view, the memory of all is reachable.
	tensors []serde.Tensor
}

// needs reports whether there is no room for n tensors.
func (c *shown) needs(n int) bool { return max(n, 1) > cap(c.tensors) }

// grow makes room for n tensors in new memory, and returns where it begins.
func (c *shown) grow(n int) *serde.Tensor {
	c.tensors = make([]serde.Tensor, max(n, 1))
	return &c.tensors[0]
}

// fill makes the value of a layout whose data are in the segment. There must be room.
func (c *shown) fill(l *decoded, data []byte) {
	c.tensors = c.tensors[:len(l.tensors)]
	for i, s := range l.tensors {
		t := &c.tensors[i]
		t.DType, t.Shape, t.Data = s.tensor.DType, s.tensor.Shape, data[s.offset:s.offset+s.len:s.offset+s.len]
	}
	switch v := l.value.(type) {
	case nil:
		c.value = serde.Pickle(data)
	case *serde.Tensor:
		c.value = &c.tensors[0]
	case *serde.Item:
		c.elems = append(c.elems[:0], v.Elems...)
		next := c.tensors
		for i := range c.elems {
			c.elems[i].Data, next = withTensors(c.elems[i].Data, next)
		}
		c.item = serde.Item{Modality: v.Modality, Elems: c.elems}
		c.value = &c.item
	}
}

// withTensors returns the data of an elem with other tensors, and those that it did not take.
func withTensors(d any, next []serde.Tensor) (any, []serde.Tensor) {
	switch l := d.(type) {
	case *serde.Tensor:
		return &next[0], next[1:]
	case []any:
		if !hasTensors(l) {
			return d, next
		}
		out := make([]any, len(l))
		for i, d := range l {
			out[i], next = withTensors(d, next)
		}
		return out, next
	}
	return d, next
}

func hasTensors(list []any) bool {
	return slices.ContainsFunc(list, func(d any) bool {
		switch d := d.(type) {
		case *serde.Tensor:
			return true
		case []any:
			return hasTensors(d)
		}
		return false
	})
}

// clear forgets the value, so that nothing in the memory leads to the segment.
func (c *shown) clear() {
	c.value = nil
	c.item = serde.Item{}
	clear(c.elems)
	clear(c.tensors)
}
