package serde

import (
	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/pycompat"
)

// encoder writes items and tensors, and keeps where their bytes lie.
type encoder struct {
	*codec.Encoder
	gen    *pycompat.Generation
	whole  bool // refuse tensors without data
	places []Placement
	path   []int // the way to the tensor at hand through nested lists
}

func newEncoder(o Options) (*encoder, error) {
	g, err := pycompat.Resolve(o.Generation)
	if err != nil {
		return nil, err
	}
	return &encoder{Encoder: codec.NewEncoder(codec.Threshold(o.InlineThreshold)), gen: g}, nil
}

// tensor writes [dtype, shape, data].
func (e *encoder) tensor(t *Tensor) {
	if t == nil {
		e.Invalid("tensor", "it is a nil *Tensor; use a nil Data for None")
		return
	}
	n, problem := t.check()
	hole := t.Data == nil && n > 0
	if problem == "" && hole && e.whole {
		problem = "it has no Data; only NewPlan takes layouts"
	}
	if problem != "" {
		e.Invalid("tensor", "%s", problem)
		return
	}
	e.Head(string(t.DType), t.Shape)
	off, inline := e.Payload(t.Data, n, false)
	if e.whole {
		return
	}
	p := Placement{Key: e.Elem, Tensor: t, Offset: off, Len: n, Inline: inline, data: t.Data}
	if len(e.path) > 0 {
		p.Path = append(p.Path, e.path...)
	}
	e.places = append(e.places, p)
}

// data writes the data of an elem. None is refused inside lists, where Python
// raises too.
func (e *encoder) data(d any) {
	if d == nil {
		if len(e.path) > 0 {
			e.Invalid("data", "None inside a list; vLLM allows it only as the whole data")
			return
		}
		e.Nil()
		return
	}
	switch d := d.(type) {
	case *Tensor:
		e.tensor(d)
	case int:
		e.Int(int64(d))
	case int64:
		e.Int(d)
	case uint64:
		e.Uint(d)
	case float64:
		e.Float(d)
	case bool:
		e.Bool(d)
	case []any:
		if len(e.path) == codec.MaxDepth {
			e.Invalid("data", "lists are nested deeper than %d", codec.MaxDepth)
			return
		}
		e.Array(len(d))
		e.path = append(e.path, 0)
		for i, v := range d {
			e.path[len(e.path)-1] = i
			e.data(v)
			if e.Err() != nil {
				return
			}
		}
		e.path = e.path[:len(e.path)-1]
	default:
		e.Invalid("data", "a %T stands for nothing that an elem can have; Elem.Data lists the types", d)
	}
}
