package codec

import (
	"fmt"

	"github.com/tinylib/msgp/msgp"

	"github.com/ringcache/ringcache/internal/msgpackguard"
	"github.com/ringcache/ringcache/internal/shapes"
)

// Shape reads the shape of an array.
func (d *Decoder) Shape() ([]int, error) { return d.ShapeIn(makeInts) }

func makeInts(n int) []int { return make([]int, n) }

// ShapeIn is Shape in memory that take returns for a number of dimensions.
func (d *Decoder) ShapeIn(take func(n int) []int) ([]int, error) {
	n, err := d.Array("shape")
	if err != nil {
		return nil, err
	}
	if n > MaxDims {
		return nil, d.Corrupt("shape", fmt.Sprintf("at most %d dimensions", MaxDims), fmt.Sprint(n))
	}
	shape := take(n)
	for i := range shape {
		if shape[i], err = d.IntFrom("shape", 0); err != nil {
			return nil, err
		}
	}
	return shape, nil
}

// Tensor reads what follows the dtype of a tensor: its shape, and its bytes.
func (d *Decoder) Tensor(itemSize int) (shape []int, data []byte, err error) {
	return d.TensorIn(makeInts, itemSize)
}

// TensorIn is Tensor with a shape of ShapeIn.
func (d *Decoder) TensorIn(take func(n int) []int, itemSize int) (shape []int, data []byte, err error) {
	if shape, err = d.ShapeIn(take); err != nil {
		return nil, nil, err
	}
	want, fits := shapes.Bytes(shape, itemSize)
	if !fits {
		return nil, nil, d.Corrupt("shape", "a tensor that fits in memory", fmt.Sprint(shape))
	}
	data, err = d.Payload("tensor", want)
	return shape, data, err
}

// Payload reads the bytes of a tensor or ndarray: raw bytes in the document, or
// the index of a frame. Each frame belongs to one array, so that a small
// document cannot stand for much memory.
func (d *Decoder) Payload(what string, want int) ([]byte, error) {
	var data []byte
	switch k := d.Peek(); k {
	case KindExt:
		id, raw, err := d.extension(what)
		if err != nil {
			return nil, err
		}
		switch id {
		case extRaw:
		case 1, 2:
			return nil, &UnsupportedError{fmt.Sprintf("serde: %s holds a pickle (extension %d), which is never executed; "+
				"run the peer without VLLM_ALLOW_INSECURE_SERIALIZATION", what, id)}
		default:
			return nil, &UnsupportedError{fmt.Sprintf("serde: %s holds data of the unknown extension %d; "+
				"check that the peer is a known vLLM", what, id)}
		}
		data = raw
	case KindInt:
		i, err := d.Int64(what)
		if err != nil {
			return nil, err
		}
		if i < 1 || i >= int64(len(d.frames)) {
			return nil, d.Corrupt(what, fmt.Sprintf("the index of one of %d frames", len(d.frames)-1), fmt.Sprint(i))
		}
		if data = d.frames[i]; data == nil {
			return nil, d.Corrupt(what, "a frame of its own", fmt.Sprintf("frame %d again", i))
		}
		d.frames[i] = nil
		data = data[:len(data):len(data)]
	case KindMap:
		return nil, &UnsupportedError{fmt.Sprintf("serde: %s was sent out of band, which only Python peers can do; "+
			"run the engine with mm_tensor_ipc=direct_rpc", what)}
	default:
		return nil, d.Corrupt(what, "raw bytes or the index of a frame", k.String())
	}
	if len(data) != want {
		return nil, d.Corrupt(what, fmt.Sprintf("%d bytes by dtype and shape", want), fmt.Sprint(len(data)))
	}
	return data, nil
}

// extension reads an extension, whose bytes are a view.
func (d *Decoder) extension(what string) (id int8, data []byte, err error) {
	b := d.rest()
	size, n := 2, 0 // of the header and of the data
	switch c := b[0]; c {
	case 0xc7, 0xc8, 0xc9: // a length of 8, 16 or 32 bits
		size = 2 + 1<<(c-0xc7)
		if len(b) < size {
			break
		}
		for _, digit := range b[1 : size-1] {
			n = n<<8 | int(digit)
		}
	default: // 1, 2, 4, 8 or 16 bytes
		n = 1 << (c - 0xd4)
	}
	if len(b) < size {
		return 0, nil, d.Corrupt(what, fmt.Sprintf("an extension's header of %d bytes", size), fmt.Sprint(len(b)))
	}
	d.pos += size
	data, err = d.view(what, n)
	return int8(b[size-1]), data, err
}

// Bytes reads bytes, or those of a string or a raw extension, into memory of their own.
func (d *Decoder) Bytes(what string) ([]byte, error) {
	var b []byte
	var err error
	switch k := d.Peek(); k {
	case KindExt:
		var id int8
		if id, b, err = d.extension(what); err == nil && id != extRaw {
			return nil, &UnsupportedError{fmt.Sprintf("serde: %s holds the extension %d, which is never executed; "+
				"run the peer without VLLM_ALLOW_INSECURE_SERIALIZATION", what, id)}
		}
	case KindStr:
		b, err = d.TextView(what)
	case KindBin:
		var rest []byte
		if b, rest, err = msgp.ReadBytesZC(d.rest()); err != nil {
			err = d.broken(what, err)
		} else {
			d.went(rest)
		}
	default:
		err = d.Corrupt(what, KindBin.String(), k.String())
	}
	if err == nil {
		err = d.Charge(what, len(b))
	}
	if err != nil {
		return nil, err
	}
	return append([]byte{}, b...), nil
}

// Texts reads a list of strings.
func (d *Decoder) Texts(what string) ([]string, error) { return list(d, what, d.Text) }

// Tokens reads a list of integers of 32 bits without a sign.
func (d *Decoder) Tokens(what string) ([]uint32, error) { return list(d, what, d.Uint32) }

// Bools reads a list of bools.
func (d *Decoder) Bools(what string) ([]bool, error) { return list(d, what, d.Bool) }

func list[T any](d *Decoder, what string, read func(string) (T, error)) ([]T, error) {
	n, err := d.Array(what)
	if err != nil {
		return nil, err
	}
	out := make([]T, 0, d.Room(n))
	for range n {
		v, err := read(what)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// TextMap reads a map from strings to strings.
func (d *Decoder) TextMap(what string) (map[string]string, error) {
	n, err := d.Map(what)
	if err != nil {
		return nil, err
	}
	if err := d.Charge(what, CostMap+CostEntry*n); err != nil {
		return nil, err
	}
	out := make(map[string]string, n)
	for range n {
		k, err := d.Text(what)
		if err != nil {
			return nil, err
		}
		if out[k], err = d.Text(what); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ReadOptional returns nil for None.
func ReadOptional[T any](d *Decoder, what string, read func(string) (T, error)) (*T, error) {
	if d.Nil() {
		return nil, nil
	}
	v, err := read(what)
	if err != nil {
		return nil, err
	}
	return &v, nil
}

// Object reads a map that Python decodes into a dataclass: unknown names are
// passed over, as msgspec does, and the required ones must be there. read
// handles one name and reports whether it is one of the object's.
func (d *Decoder) Object(what string, required []string, read func(name string) (known bool, err error)) error {
	n, err := d.Map(what)
	if err != nil {
		return err
	}
	seen := make(map[string]bool, Small(n))
	for range n {
		name, err := d.Text(what)
		if err != nil {
			return err
		}
		if seen[name] {
			return d.Corrupt(what, "each key once", fmt.Sprintf("%.64q twice", name))
		}
		seen[name] = true
		known, err := read(name)
		if err == nil && !known {
			err = d.Skip(what)
		}
		if err != nil {
			return err
		}
	}
	for _, name := range required {
		if !seen[name] {
			return d.Corrupt(what, fmt.Sprintf("the key %q", name), "none")
		}
	}
	return nil
}

// Part reads one value and stands behind it afterwards, whether it could be read
// or not. The second error ends it all.
func (d *Decoder) Part(what string, read func() error) (failure, err error) {
	end, err := msgpackguard.Next(d.doc, d.Pos(), guardLimits)
	if err != nil {
		return nil, d.broken(what, err)
	}
	if failure = read(); failure != nil {
		if err := d.Charge(what, costError); err != nil {
			return nil, err
		}
	}
	d.Seek(end)
	return failure, nil
}

// Seek goes to a position that was passed before, or that [Decoder.Part] returned.
func (d *Decoder) Seek(pos int) { d.pos = pos }
