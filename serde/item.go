package serde

import (
	"slices"
	"strconv"
)

// Item is vLLM's MultiModalKwargsItem: the processed inputs of one image, video
// or audio clip, by name. Order is kept, but carries no meaning: in Python it
// changes from process to process.
type Item struct {
	// Modality is part of the wire only in the forms pycompat.ItemPositional
	// and pycompat.ItemKeyed, which require it; decoding pycompat.ItemMap
	// leaves it empty.
	Modality string
	Elems    []Elem
}

func (*Item) typeName() string { return typeItem }

// Lookup returns the elem with the given key. The pointer is into it.Elems.
func (it *Item) Lookup(key string) (*Elem, bool) {
	for i := range it.Elems {
		if it.Elems[i].Key == key {
			return &it.Elems[i], true
		}
	}
	return nil, false
}

// Elem is one named input and how a batch of it is put together.
type Elem struct {
	Key string
	// Data is nil (Python's None), a *[Tensor], a bool, an int64, a uint64 (for what
	// an int64 can't hold), a float64, or a list: []any of these, nested at most 64
	// deep. None is allowed only at the top, not inside a list. An encoder also
	// takes an int, and refuses every other type; a decoder gives just these.
	Data  any
	Field Field
}

// FieldKind is how the inputs of several items make a batch.
type FieldKind uint8

const (
	// Batched: one entry per item, stacked.
	Batched FieldKind = iota
	// Flat: concatenated along a dimension; Slices say which part is whose.
	Flat
	// Shared: the same for every item of the batch.
	Shared
)

// String is the word in lower case.
func (k FieldKind) String() string {
	switch k {
	case Batched:
		return "batched"
	case Flat:
		return "flat"
	case Shared:
		return "shared"
	}
	return "FieldKind(" + strconv.Itoa(int(k)) + ")"
}

// Field is a MultiModalBatchedField, -FlatField or -SharedField.
type Field struct {
	Kind FieldKind
	// KeepOnCPU is not part of the form pycompat.ItemPositional, where it is
	// not written and reads as false.
	KeepOnCPU bool
	// Slices, of a Flat field: for each item of the original batch the slice it
	// takes in every dimension. When Nested is false the wire has a plain list
	// of slices, and each Slices[i] must have length 1. An empty list is always
	// read as not Nested.
	Slices [][]Slice
	Nested bool
	// Dim, of a Flat field: the dimension it is concatenated along; may be
	// negative.
	Dim int
	// BatchSize, of a Shared field: the number of items that share it.
	BatchSize int
}

// Slice is a Python slice. A nil bound is None.
type Slice struct{ Start, Stop, Step *int64 }

// Range returns the slice start:stop.
func Range(start, stop int64) Slice { return Slice{Start: &start, Stop: &stop} }

func (s Slice) clone() Slice {
	for _, bound := range []**int64{&s.Start, &s.Stop, &s.Step} {
		if *bound != nil {
			*bound = new(**bound)
		}
	}
	return s
}

// FlatFromSizes returns the flat field of a batch whose items take sizes[i]
// entries each along the first dimension, as vLLM's flat_from_sizes makes it.
func FlatFromSizes(sizes ...int) Field {
	f := Field{Kind: Flat, Nested: true, Slices: make([][]Slice, len(sizes))}
	var at int64
	for i, n := range sizes {
		f.Slices[i] = []Slice{Range(at, at+int64(n))}
		at += int64(n)
	}
	return f
}

func (it *Item) clone() *Item {
	if it == nil {
		return nil
	}
	c := &Item{Modality: it.Modality, Elems: slices.Clone(it.Elems)}
	for i := range c.Elems {
		e := &c.Elems[i]
		e.Data = cloneData(e.Data)
		e.Field.Slices = slices.Clone(e.Field.Slices)
		for j, list := range e.Field.Slices {
			list = slices.Clone(list)
			for k, s := range list {
				list[k] = s.clone()
			}
			e.Field.Slices[j] = list
		}
	}
	return c
}
