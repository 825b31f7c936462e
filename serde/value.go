package serde

// Type names in the metadata, Python's class names.
const (
	typeItem   = "MultiModalKwargsItem"
	typeTensor = "Tensor"
	typePickle = "bytes"
)

// Value is what a chunk can hold: *[Item], *[Tensor] or [Pickle].
type Value interface{ typeName() string }

// Pickle is a pickled Python object, which vLLM stores for every value that is
// neither an item nor a tensor. It is opaque here and never unpickled.
type Pickle []byte

func (Pickle) typeName() string { return typePickle }

// Clone returns a deep copy of v that shares no memory with it.
func Clone(v Value) Value {
	switch v := v.(type) {
	case *Item:
		return v.clone()
	case *Tensor:
		if v == nil {
			return v
		}
		return v.clone()
	case Pickle:
		return append(Pickle(nil), v...)
	}
	return v
}

func cloneData(d any) any {
	switch d := d.(type) {
	case *Tensor:
		if d == nil {
			return d
		}
		return d.clone()
	case []any:
		c := make([]any, len(d))
		for i, e := range d {
			c[i] = cloneData(e)
		}
		return c
	}
	return d
}
