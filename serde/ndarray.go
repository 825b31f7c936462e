package serde

import (
	"slices"
	"strconv"
	"strings"

	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/internal/shapes"
)

// NDArray is a numpy array in C order. Inside an item numpy arrays are not allowed;
// they occur elsewhere in the messages of package enginecore.
type NDArray struct {
	// DType is numpy's type string: byte order ('<', '>', or '|' where it has
	// none), kind and size, such as "<f4", "|u1" or "<U2".
	DType string
	Shape []int // empty for a 0-d array
	Data  []byte
}

// NBytes returns the length in bytes that type and shape ask for. Dates, objects and
// records have no raw bytes in vLLM either. The error wraps [fs.ErrInvalid].
func (a *NDArray) NBytes() (int, error) {
	size, ok := numpyItemSize(a.DType)
	if !ok {
		return 0, codec.Invalid("ndarray", "%.32q is no numpy type string of numbers, bools or text", a.DType)
	}
	n, ok := shapes.Bytes(a.Shape, size)
	if !ok {
		return 0, codec.Invalid("ndarray", "shape %v has a negative dimension, more than %d or too many elements",
			a.Shape, shapes.MaxDims)
	}
	return n, nil
}

// numpySizes lists the item sizes of the kinds that have fixed ones.
var numpySizes = map[byte][]int{
	'b': {1}, 'i': {1, 2, 4, 8}, 'u': {1, 2, 4, 8}, 'f': {2, 4, 8, 16}, 'c': {8, 16, 32},
}

func numpyItemSize(s string) (int, bool) {
	if len(s) < 3 || len(s) > 12 || !strings.ContainsRune("<>|", rune(s[0])) || s[2] < '1' || s[2] > '9' {
		return 0, false
	}
	n, err := strconv.Atoi(s[2:])
	if err != nil {
		return 0, false
	}
	switch s[1] {
	case 'S':
		return n, true
	case 'U': // n characters of 4 bytes
		return 4 * n, n < 1<<28
	}
	return n, slices.Contains(numpySizes[s[1]], n)
}
