package pyvalue

import (
	"fmt"

	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/serde"
)

// Read reads a value of any kind: nil, bool, int64 (uint64 above the largest),
// float64, string, []byte, []any, map[string]any, or *[serde.Map] where a key is no
// string. With arrays, what looks like an ndarray or a tensor becomes a
// *[serde.NDArray] or a *[serde.Tensor], which is a view of the message.
func Read(d *codec.Decoder, what string, arrays bool) (any, error) {
	return readValue(d, what, arrays, 0)
}

func readValue(d *codec.Decoder, what string, arrays bool, depth int) (any, error) {
	if depth > codec.MaxDepth {
		return nil, d.Corrupt(what, fmt.Sprintf("at most %d levels", codec.MaxDepth), "more")
	}
	if err := d.Charge(what, codec.CostValue); err != nil {
		return nil, err
	}
	switch k := d.Peek(); k {
	case codec.KindNil:
		d.Nil()
		return nil, nil
	case codec.KindBool:
		return d.Bool(what)
	case codec.KindInt:
		return d.Integer(what)
	case codec.KindFloat:
		return d.Float(what)
	case codec.KindStr:
		return d.Text(what)
	case codec.KindBin, codec.KindExt:
		return d.Bytes(what)
	case codec.KindArray:
		return readArray(d, what, arrays, depth)
	case codec.KindMap:
		return readMap(d, what, arrays, depth)
	default:
		return nil, d.Corrupt(what, "a value", k.String())
	}
}

func readArray(d *codec.Decoder, what string, arrays bool, depth int) (any, error) {
	start := d.Pos()
	n, err := d.Array(what)
	if err != nil {
		return nil, err
	}
	if arrays && n == 3 && d.Peek() == codec.KindStr {
		name, err := d.TextView(what)
		if err != nil {
			return nil, err
		}
		dtype := string(name)
		_, torch := torchDType(dtype)
		if torch || numpyType(dtype) {
			d.Seek(start)
			if torch {
				return ok(ReadTensor(d))
			}
			return ok(ReadNDArray(d))
		}
		d.Seek(start)
		_, _ = d.Array(what)
	}
	if err := d.Charge(what, codec.CostValue*n); err != nil {
		return nil, err
	}
	out := make([]any, 0, n)
	for range n {
		v, err := readValue(d, what, arrays, depth+1)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// ok keeps a typed nil out of the interface.
func ok[T any](v *T, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

func readMap(d *codec.Decoder, what string, arrays bool, depth int) (any, error) {
	n, err := d.Map(what)
	if err != nil {
		return nil, err
	}
	if n > 0 {
		if err := d.Charge(what, codec.CostMap+codec.CostEntry*n); err != nil {
			return nil, err
		}
	}
	m := &serde.Map{Keys: make([]any, 0, n), Values: make([]any, 0, n)}
	texts := true
	for range n {
		switch k := d.Peek(); k {
		case codec.KindStr, codec.KindInt, codec.KindFloat, codec.KindBool:
			texts = texts && k == codec.KindStr
		default:
			return nil, d.Corrupt(what, "a string or a number as key", k.String())
		}
		k, err := readValue(d, what, false, depth+1)
		if err != nil {
			return nil, err
		}
		v, err := readValue(d, what, arrays, depth+1)
		if err != nil {
			return nil, err
		}
		m.Keys, m.Values = append(m.Keys, k), append(m.Values, v)
	}
	if !texts {
		return m, nil
	}
	out := make(map[string]any, n)
	for i, k := range m.Keys {
		out[k.(string)] = m.Values[i]
	}
	return out, nil
}

// ReadMap reads a map with strings for keys.
func ReadMap(d *codec.Decoder, what string) (map[string]any, error) {
	v, err := Read(d, what, false)
	if err != nil {
		return nil, err
	}
	m, isMap := v.(map[string]any)
	if !isMap {
		return nil, d.Corrupt(what, "a map with strings for keys", fmt.Sprintf("a %T", v))
	}
	return m, nil
}
