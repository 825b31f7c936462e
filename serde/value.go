package serde

import "github.com/ringcache/ringcache/internal/codec"

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

// Data is the data of an [Elem]: nil (None), *[Tensor], [Int], [Uint], [Float],
// [Bool] or [List]. None is allowed only at the top, not inside a List.
type Data interface{ isData() }

type (
	// Int is an integer that an int64 can hold.
	Int int64
	// Uint is for the integers above the largest int64. A decoder returns
	// smaller ones as Int; encoded they look the same.
	Uint uint64
	// Float is a Python float.
	Float float64
	// Bool is a Python bool.
	Bool bool
	// List is a Python list or tuple, nested at most [MaxDepth] deep.
	List []Data
)

func (Int) isData()   {}
func (Uint) isData()  {}
func (Float) isData() {}
func (Bool) isData()  {}
func (List) isData()  {}

// MaxDepth is how deep lists may be nested in the data of an elem.
const MaxDepth = codec.MaxDepth

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

func cloneData(d Data) Data {
	switch d := d.(type) {
	case *Tensor:
		if d == nil {
			return d
		}
		return d.clone()
	case List:
		c := make(List, len(d))
		for i, e := range d {
			c[i] = cloneData(e)
		}
		return c
	}
	return d
}
