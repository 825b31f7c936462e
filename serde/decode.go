package serde

import (
	"fmt"
	"slices"

	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/pycompat"
)

// DecodeItem reads an item. Its tensors are views of f; see the package
// comment. The error wraps [ErrCorrupt] or [ErrUnsupported].
func DecodeItem(f [][]byte, o Options) (*Item, error) {
	return decode(f, o, (*decoder).item)
}

// DecodeTensor reads a tensor, which is a view of f. The error wraps
// [ErrCorrupt] or [ErrUnsupported].
func DecodeTensor(f [][]byte, o Options) (*Tensor, error) {
	return decode(f, o, (*decoder).tensor)
}

// DecodeValue reads the value whose metadata is m from data, which must be the
// m.NBytes last bytes of the chunk. The value is a view of data. The error
// wraps [ErrCorrupt] or [ErrUnsupported]; for a type that is none of the three
// it has the text of vLLM's.
func DecodeValue(m Metadata, data []byte, o Options) (Value, error) {
	return new(Decoder).value(m, data, o)
}

// Decoder decodes the values of one chunk after the other into memory that it uses again.
// It allocates only for what is larger than before, for new keys, and for lists and
// numbers that are not tensors. What it keeps is as large as the largest value that it
// decoded, without the bytes of tensors.
//
// The zero value is ready. A Decoder must not be copied.
type Decoder struct {
	read   decoder
	mp     codec.Decoder
	mem    memory
	lens   []int64
	frames [][]byte
	room   struct {
		lens   [3]int64
		frames [3][]byte
	}
}

// Decode is [ParsePayload] and [DecodeValue] at once, for the payload of a chunk without
// its reader count. The value is a view of the payload, and belongs to d: it is valid until
// the next call. [Clone] makes one that stays.
func (d *Decoder) Decode(payload []byte, o Options) (Value, error) {
	if d.lens == nil {
		d.lens = d.room.lens[:]
	}
	m, data, err := parsePayload(payload, d.lens[:0])
	if err != nil {
		return nil, err
	}
	if cap(m.Lens) > cap(d.lens) {
		d.lens = m.Lens
	}
	return d.value(m, data, o)
}

func (d *Decoder) value(m Metadata, data []byte, o Options) (Value, error) {
	if int64(len(data)) != m.NBytes {
		return nil, &codec.CorruptError{
			What: "data", Offset: -1, Want: fmt.Sprintf("%d bytes by the metadata", m.NBytes),
			Got: fmt.Sprint(len(data)),
		}
	}
	switch m.Type {
	case typePickle:
		if m.Lens != nil || len(data) == 0 {
			return nil, &codec.CorruptError{What: "metadata", Offset: -1,
				Want: "None for the lengths of a pickle of at least a byte",
				Got:  fmt.Sprintf("%d lengths, %d bytes", len(m.Lens), len(data))}
		}
		return Pickle(data[:len(data):len(data)]), nil
	case typeItem, typeTensor:
	default:
		return nil, &codec.UnsupportedError{Text: fmt.Sprintf("Unsupported object type '%.255s' in metadata", m.Type)}
	}
	if n := len(m.Lens) - 1; n >= 0 && int64(n) > maxFrames(m.Lens[0]) {
		return nil, &codec.CorruptError{What: "metadata", Offset: -1,
			Want: fmt.Sprintf("at most the %d frames that a document of %d bytes can refer to",
				maxFrames(m.Lens[0]), m.Lens[0]), Got: fmt.Sprint(n)}
	}
	if d.frames == nil {
		d.frames = d.room.frames[:]
	}
	clear(d.frames)
	var err error
	if d.frames, err = split(d.frames[:0], m.Lens, data); err != nil {
		return nil, err
	}
	// A typed nil must not get into the interface.
	if m.Type == typeTensor {
		t, err := readWhole(d, d.frames, o, (*decoder).tensor)
		if err != nil {
			return nil, err
		}
		return t, nil
	}
	it, err := readWhole(d, d.frames, o, (*decoder).item)
	if err != nil {
		return nil, err
	}
	return it, nil
}

// split appends the frames of these lengths to f.
func split(f [][]byte, lens []int64, data []byte) ([][]byte, error) {
	f = slices.Grow(f, len(lens))
	for _, n := range lens {
		if n < 0 || n > int64(len(data)) {
			return nil, &codec.CorruptError{
				What: "metadata", Offset: -1, Want: fmt.Sprintf("a frame of at most the %d bytes left", len(data)),
				Got: fmt.Sprint(n),
			}
		}
		f = append(f, data[:n:n])
		data = data[n:]
	}
	if len(data) > 0 {
		return nil, &codec.CorruptError{
			What: "metadata", Offset: -1, Want: "frames that cover the data",
			Got: fmt.Sprintf("%d bytes left over", len(data)),
		}
	}
	return f, nil
}

// decoder reads items and tensors of a generation into a memory.
type decoder struct {
	*codec.Decoder
	gen *pycompat.Generation
	mem *memory
}

// decode reads a document that holds one value, and leaves the list of frames as it is.
func decode[T any](frames [][]byte, o Options, read func(*decoder) (T, error)) (T, error) {
	return readWhole(new(Decoder), slices.Clone(frames), o, read)
}

// readWhole reads a document that holds one value. A frame that a tensor takes becomes nil
// in frames.
func readWhole[T any](d *Decoder, frames [][]byte, o Options, read func(*decoder) (T, error)) (v T, err error) {
	g, err := pycompat.Resolve(o.Generation)
	if err != nil {
		return v, err
	}
	if d.mem.items.all == nil {
		d.mem.init()
	} else {
		d.mem.reset()
	}
	if err := d.mp.Begin(frames); err != nil {
		return v, err
	}
	d.read = decoder{&d.mp, g, &d.mem}
	got, err := read(&d.read)
	if err == nil {
		err = d.mp.End()
	}
	if err != nil {
		return v, err
	}
	return got, nil
}
