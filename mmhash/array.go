package mmhash

import (
	"slices"
	"strconv"
	"strings"

	"github.com/ringcache/ringcache/internal/shapes"
)

// Array is a numpy array.
type Array struct {
	// DType is numpy's type string as numpy prints it: byte order ('<', '>', or
	// '|' where it has none), kind and size, such as "<f4", "|u1" or "<U2".
	DType string
	Shape []int // empty for a 0-d array
	// Data is the array in C order, whatever its order in memory was. It is not
	// copied.
	Data []byte
}

// Tensor is a torch tensor. Its hash does not depend on the device or the order
// in memory.
type Tensor struct {
	// DType is torch's name without "torch.", such as "bfloat16".
	DType string
	Shape []int // empty for a 0-d tensor
	// Data is the tensor in row-major order. It is not copied.
	Data []byte
}

// numpyOf maps the dtypes that torch and numpy have in common. Of all others but
// bfloat16 vLLM fails to make an array.
var numpyOf = map[string]string{
	"bool": "|b1", "uint8": "|u1", "int8": "|i1", "uint16": "<u2", "int16": "<i2", "uint32": "<u4", "int32": "<i4",
	"uint64": "<u8", "int64": "<i8", "float16": "<f2", "float32": "<f4", "float64": "<f8",
	"complex64": "<c8", "complex128": "<c16",
}

func (s *stream) array(a *Array) {
	if a == nil {
		s.fail(errInvalid, "it is a nil *Array")
		return
	}
	d, ok := parseDType(a.DType)
	if !ok {
		s.fail(ErrUnsupported, "%s is no numpy type string of numbers, bools, text, bytes or dates", quote(a.DType))
		return
	}
	if !s.fits("an array", a.Shape, d.size, len(a.Data)) {
		return
	}
	s.ndarray(a.DType, d, a.Shape, a.Data)
}

func (s *stream) tensor(t *Tensor) {
	if t == nil {
		s.fail(errInvalid, "it is a nil *Tensor")
		return
	}
	if t.DType == "bfloat16" {
		s.bfloat16(t)
		return
	}
	name := numpyOf[t.DType]
	d, ok := parseDType(name)
	if !ok {
		s.fail(ErrUnsupported, "numpy has no type for a tensor of %s, and vLLM fails on it; convert it first",
			quote(t.DType))
		return
	}
	if !s.fits("a tensor", t.Shape, d.size, len(t.Data)) {
		return
	}
	s.leaf()
	outer := s.enter("tensor")
	s.ndarray(name, d, t.Shape, t.Data)
	s.leave(outer)
}

// bfloat16, which numpy does not have, is hashed as an array of bytes.
func (s *stream) bfloat16(t *Tensor) {
	if !s.fits("a tensor", t.Shape, 2, len(t.Data)) {
		return
	}
	s.leaf()
	outer := s.enter("tensor")
	s.mapping(3)
	mark := s.key("original_dtype")
	s.leafText("torch.bfloat16")
	s.up(mark)
	mark = s.key("original_shape")
	s.shape(t.Shape)
	s.up(mark)
	mark = s.key("data")
	flat := [1]int{len(t.Data)}
	s.ndarray("|u1", dtype{kind: 'u', size: 1}, flat[:], t.Data)
	s.up(mark)
	s.leave(outer)
}

// ndarray writes an array whose data is as long as it should be.
func (s *stream) ndarray(name string, d dtype, shape []int, data []byte) {
	s.leaf()
	outer := s.enter("ndarray")
	s.mapping(3)
	mark := s.key("dtype")
	s.leafText(name)
	s.up(mark)
	mark = s.key("shape")
	s.shape(shape)
	s.up(mark)
	mark = s.key("data")
	if len(shape) > 0 {
		s.leafBytes(data)
	} else {
		s.scalar(d, data)
	}
	s.up(mark)
	s.leave(outer)
}

func (s *stream) shape(shape []int) {
	s.sequence(len(shape))
	for i, n := range shape {
		mark := s.index(i)
		s.leafUint64(uint64(n))
		s.up(mark)
	}
}

// fits reports whether there is as much data as the shape demands.
func (s *stream) fits(what string, shape []int, size, have int) bool {
	n, ok := shapes.Bytes(shape, size)
	switch {
	case !ok:
		s.fail(errInvalid, "the shape of %s has a negative dimension, more than %d dimensions or too many elements",
			what, shapes.MaxDims)
	case n != have:
		s.fail(errInvalid, "%s of shape %v takes %d bytes, there are %d", what, slices.Clone(shape), n, have)
	default:
		return true
	}
	return false
}

// dtype is a numpy type string, taken apart.
type dtype struct {
	kind byte
	size int // bytes of one element
	big  bool
}

// sizesOf lists the sizes of the kinds that have fixed ones.
var sizesOf = map[byte][]int{
	'b': {1}, 'i': {1, 2, 4, 8}, 'u': {1, 2, 4, 8}, 'f': {2, 4, 8, 16}, 'c': {8, 16, 32}, 'M': {8}, 'm': {8},
}

// parseDType accepts what numpy prints, and no other spelling, since that would
// be another hash. Objects, records with objects and structures have none.
func parseDType(name string) (d dtype, ok bool) {
	if len(name) < 3 || len(name) > 24 {
		return d, false
	}
	order, kind, digits := name[0], name[1], name[2:]
	if kind == 'M' || kind == 'm' { // with a unit, as in "<M8[ns]"
		unit := ""
		if digits, unit, ok = strings.Cut(digits, "["); ok && !strings.HasSuffix(unit, "]") {
			return d, false
		}
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || digits[0] < '1' || digits[0] > '9' {
		return d, false
	}
	ordered := true // whether numpy prints a byte order
	switch kind {
	case 'S', 'V':
		ordered = false
	case 'U': // characters of 4 bytes
		if n >= 1<<28 {
			return d, false
		}
		n *= 4
	default:
		if !slices.Contains(sizesOf[kind], n) {
			return d, false
		}
		ordered = n > 1
	}
	if ordered != (order == '<' || order == '>') || !ordered && order != '|' {
		return d, false
	}
	return dtype{kind, n, order == '>'}, true
}
