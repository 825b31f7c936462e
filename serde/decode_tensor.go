package serde

import "github.com/ringcache/ringcache/internal/shapes"

import "fmt"

var emptyList Data = List{}

// data reads the data of an elem. As in vLLM's decoder, an array that starts
// with a string is a tensor, any other a list.
func (d *decoder) data(depth int) (Data, error) {
	const what = "data"
	switch k := d.peek(); k {
	case kindNil:
		if depth > 0 {
			return nil, d.corrupt(what, "no nil inside a list", "nil")
		}
		d.null()
		return nil, nil
	case kindInt:
		return d.number(what)
	case kindFloat:
		f, err := d.mp.DecodeFloat64()
		if err != nil {
			return nil, d.broken(what, err)
		}
		return Float(f), nil
	case kindBool:
		b, err := d.boolean(what)
		return Bool(b), err
	case kindArray:
		n, err := d.array(what)
		if err != nil {
			return nil, err
		}
		if n > 0 && d.peek() == kindStr {
			t, err := d.tensorOf(n)
			if err != nil {
				return nil, err
			}
			return t, nil
		}
		return d.list(n, depth+1)
	default:
		return nil, d.corrupt(what, "a tensor, a number, a list or nil", string(k))
	}
}

func (d *decoder) list(n, depth int) (Data, error) {
	if depth > MaxDepth {
		return nil, d.corrupt("data", fmt.Sprintf("at most %d levels of lists", MaxDepth), "more")
	}
	if n == 0 {
		return emptyList, nil
	}
	l := make(List, 0, d.room(n))
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
	n, err := d.array("tensor")
	if err != nil {
		return nil, err
	}
	return d.tensorOf(n)
}

// tensorOf reads a tensor behind the header of its array of n.
func (d *decoder) tensorOf(n int) (*Tensor, error) {
	if n != 3 {
		return nil, d.corrupt("tensor", "[dtype, shape, data]", fmt.Sprintf("an array of %d", n))
	}
	name, err := d.str("dtype")
	if err != nil {
		return nil, err
	}
	dt, ok := lookupDType(name)
	if !ok {
		return nil, &UnsupportedError{fmt.Sprintf("serde: tensor has the dtype %.64q, which this library does not know; "+
			"ask for a dtype of torch 2.14 or update the library", name)}
	}
	t := &Tensor{DType: dt}
	if t.Shape, err = d.shape(); err != nil {
		return nil, err
	}
	want, ok := shapes.Bytes(t.Shape, dt.ItemSize())
	if !ok {
		return nil, d.corrupt("shape", "a tensor that fits in memory", fmt.Sprint(t.Shape))
	}
	t.Data, err = d.payload("tensor", want)
	if err != nil {
		return nil, err
	}
	return t, nil
}

func (d *decoder) shape() ([]int, error) {
	n, err := d.array("shape")
	if err != nil {
		return nil, err
	}
	if n > MaxDims {
		return nil, d.corrupt("shape", fmt.Sprintf("at most %d dimensions", MaxDims), fmt.Sprint(n))
	}
	shape := make([]int, n)
	for i := range shape {
		if shape[i], err = d.int("shape", 0); err != nil {
			return nil, err
		}
	}
	return shape, nil
}

// payload reads the bytes of a tensor or ndarray: raw bytes in the document, or
// the index of a frame. Each frame belongs to one tensor, so that a small
// document cannot stand for much memory.
func (d *decoder) payload(what string, want int) ([]byte, error) {
	var data []byte
	switch k := d.peek(); k {
	case kindExt:
		id, n, err := d.mp.DecodeExtHeader()
		if err != nil {
			return nil, d.broken(what, err)
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
		if data, err = d.view(what, n); err != nil {
			return nil, err
		}
	case kindInt:
		i, err := d.int64(what)
		if err != nil {
			return nil, err
		}
		if i < 1 || i >= int64(len(d.frames)) {
			return nil, d.corrupt(what, fmt.Sprintf("the index of one of %d frames", len(d.frames)-1), fmt.Sprint(i))
		}
		if d.used[i] {
			return nil, d.corrupt(what, "a frame of its own", fmt.Sprintf("frame %d again", i))
		}
		d.used[i] = true
		data = d.frames[i]
		data = data[:len(data):len(data)]
	case kindMap:
		return nil, &UnsupportedError{fmt.Sprintf("serde: %s was sent out of band, which only Python peers can do; "+
			"run the engine with mm_tensor_ipc=direct_rpc", what)}
	default:
		return nil, d.corrupt(what, "raw bytes or the index of a frame", string(k))
	}
	if len(data) != want {
		return nil, d.corrupt(what, fmt.Sprintf("%d bytes by dtype and shape", want), fmt.Sprint(len(data)))
	}
	return data, nil
}
