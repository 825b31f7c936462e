package serde

import (
	"fmt"

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
	if int64(len(data)) != m.NBytes {
		return nil, &codec.CorruptError{What: "data", Offset: -1, Want: fmt.Sprintf("%d bytes by the metadata", m.NBytes), Got: fmt.Sprint(len(data))}
	}
	switch m.Type {
	case typePickle:
		if m.Lens != nil || len(data) == 0 {
			return nil, &codec.CorruptError{What: "metadata", Offset: -1, Want: "None for the lengths of a pickle of at least a byte",
				Got: fmt.Sprintf("%d lengths, %d bytes", len(m.Lens), len(data))}
		}
		return Pickle(data[:len(data):len(data)]), nil
	case typeItem, typeTensor:
	default:
		return nil, &codec.UnsupportedError{Text: fmt.Sprintf("Unsupported object type '%.255s' in metadata", m.Type)}
	}
	if n := len(m.Lens) - 1; n >= 0 && int64(n) > maxFrames(m.Lens[0]) {
		return nil, &codec.CorruptError{What: "metadata", Offset: -1,
			Want: fmt.Sprintf("at most the %d frames that a document of %d bytes can refer to", maxFrames(m.Lens[0]), m.Lens[0]), Got: fmt.Sprint(n)}
	}
	f, err := split(m.Lens, data)
	if err != nil {
		return nil, err
	}
	// A typed nil must not get into the interface.
	if m.Type == typeTensor {
		t, err := DecodeTensor(f, o)
		if err != nil {
			return nil, err
		}
		return t, nil
	}
	it, err := DecodeItem(f, o)
	if err != nil {
		return nil, err
	}
	return it, nil
}

func split(lens []int64, data []byte) ([][]byte, error) {
	f := make([][]byte, 0, len(lens))
	for _, n := range lens {
		if n < 0 || n > int64(len(data)) {
			return nil, &codec.CorruptError{What: "metadata", Offset: -1, Want: fmt.Sprintf("a frame of at most the %d bytes left", len(data)), Got: fmt.Sprint(n)}
		}
		f = append(f, data[:n:n])
		data = data[n:]
	}
	if len(data) > 0 {
		return nil, &codec.CorruptError{What: "metadata", Offset: -1, Want: "frames that cover the data", Got: fmt.Sprintf("%d bytes left over", len(data))}
	}
	return f, nil
}

func (d *decoder) item() (*Item, error) {
	if d.gen.ItemForm != pycompat.ItemMap {
		return d.itemList()
	}
	n, err := d.Map("item")
	if err != nil {
		return nil, err
	}
	it := &Item{Elems: make([]Elem, 0, codec.Small(n))}
	for range n {
		key, err := d.Text("key")
		if err != nil {
			return nil, err
		}
		d.Elem = key
		e, _, err := d.elem()
		if err != nil {
			return nil, err
		}
		e.Key = key
		it.Elems = append(it.Elems, e)
		d.Elem = ""
	}
	return it, d.unique(it)
}

// itemList reads the forms that are an array of elems with key and modality.
func (d *decoder) itemList() (*Item, error) {
	n, err := d.Array("item")
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, d.Corrupt("item", "at least one elem", "none")
	}
	it := &Item{Elems: make([]Elem, 0, codec.Small(n))}
	for i := range n {
		e, modality, err := d.elem()
		if err != nil {
			return nil, err
		}
		if i == 0 {
			it.Modality = modality
		} else if modality != it.Modality {
			return nil, d.Corrupt("item", fmt.Sprintf("the modality %.64q in every elem", it.Modality), fmt.Sprintf("%.64q", modality))
		}
		it.Elems = append(it.Elems, e)
		d.Elem = ""
	}
	return it, d.unique(it)
}

func (d *decoder) unique(it *Item) error {
	if k, dup := duplicateKey(it.Elems); dup {
		return d.Corrupt("item", "each key once", fmt.Sprintf("%.64q twice", k))
	}
	return nil
}

const (
	seenData = 1 << iota
	seenField
	seenModality
	seenKey
	seenSlices
	seenDim
	seenBatchSize
	seenKeep
)

// once notes in seen that a map has the named key.
func (d *decoder) once(what string, name []byte, seen *int, bit int) error {
	if *seen&bit != 0 {
		return d.Corrupt(what, "each key once", fmt.Sprintf("%.64q twice", name))
	}
	*seen |= bit
	return nil
}

// elem reads the map of one elem. Its names are fixed: Python raises for others.
func (d *decoder) elem() (e Elem, modality string, err error) {
	const what = "elem"
	need := seenData | seenField
	if d.gen.ItemForm != pycompat.ItemMap {
		need |= seenModality | seenKey
	}
	n, err := d.Map(what)
	if err != nil {
		return e, "", err
	}
	seen := 0
	for range n {
		name, err := d.TextView(what)
		if err != nil {
			return e, "", err
		}
		bit := 0
		switch string(name) {
		case "data":
			bit = seenData
		case "field":
			bit = seenField
		case "modality":
			bit = seenModality
		case "key":
			bit = seenKey
		}
		if bit&need == 0 {
			return e, "", d.Corrupt(what, "only the keys of this generation", fmt.Sprintf("%.64q", name))
		}
		if err = d.once(what, name, &seen, bit); err != nil {
			return e, "", err
		}
		switch bit {
		case seenData:
			e.Data, err = d.data(0)
		case seenField:
			e.Field, err = d.field()
		case seenModality:
			modality, err = d.Text("modality")
		case seenKey:
			e.Key, err = d.Text("key")
			d.Elem = e.Key
		}
		if err != nil {
			return e, "", err
		}
	}
	if seen != need {
		return e, "", d.Corrupt(what, "all keys of this generation", fmt.Sprintf("%d of them", n))
	}
	return e, modality, nil
}
