package serde

import (
	"fmt"

	"github.com/ringcache/ringcache/internal/codec"
)

var emptyList any = []any{}

// data reads the data of an elem. As in vLLM's decoder, an array that starts
// with a string is a tensor, any other a list.
func (d *decoder) data(depth int) (any, error) {
	const what = "data"
	switch k := d.Peek(); k {
	case codec.KindNil:
		if depth > 0 {
			return nil, d.Corrupt(what, "no nil inside a list", "nil")
		}
		d.Nil()
		return nil, nil
	case codec.KindInt:
		return d.Integer(what)
	case codec.KindFloat:
		return d.Float(what)
	case codec.KindBool:
		return d.Bool(what)
	case codec.KindArray:
		n, err := d.Array(what)
		if err != nil {
			return nil, err
		}
		if n > 0 && d.Peek() == codec.KindStr {
			t, err := d.tensorOf(n)
			if err != nil {
				return nil, err
			}
			return t, nil
		}
		return d.list(n, depth+1)
	default:
		return nil, d.Corrupt(what, "a tensor, a number, a list or nil", k.String())
	}
}

func (d *decoder) list(n, depth int) (any, error) {
	if depth > codec.MaxDepth {
		return nil, d.Corrupt("data", fmt.Sprintf("at most %d levels of lists", codec.MaxDepth), "more")
	}
	if n == 0 {
		return emptyList, nil
	}
	l := make([]any, 0, d.Room(n))
	for range n {
		v, err := d.data(depth)
		if err != nil {
			return nil, err
		}
		l = append(l, v)
	}
	return l, nil
}

func (d *decoder) tensor() (*Tensor, error) {
	n, err := d.Array("tensor")
	if err != nil {
		return nil, err
	}
	return d.tensorOf(n)
}

// tensorOf reads a tensor behind the header of its array of n.
func (d *decoder) tensorOf(n int) (*Tensor, error) {
	if n != 3 {
		return nil, d.Corrupt("tensor", "[dtype, shape, data]", fmt.Sprintf("an array of %d", n))
	}
	name, err := d.TextView("dtype")
	if err != nil {
		return nil, err
	}
	dt, ok := lookupDType(name)
	if !ok {
		return nil, codec.UnknownDType(name)
	}
	t := &d.mem.tensors.take(1)[0]
	t.DType = dt
	if t.Shape, t.Data, err = d.TensorIn(d.mem.dims.take, dt.ItemSize()); err != nil {
		return nil, err
	}
	return t, nil
}
