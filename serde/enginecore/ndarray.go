package enginecore

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/internal/shapes"
)

// NDArray is a numpy array in C order. Inside an item numpy arrays are not
// allowed; they occur elsewhere in requests.
type NDArray struct {
	// DType is numpy's type string: byte order ('<', '>', or '|' where it has
	// none), kind and size, such as "<f4", "|u1" or "<U2".
	DType string
	Shape []int // empty for a 0-d array
	Data  []byte
}

// size returns the length in bytes that type and shape ask for. Dates, objects and
// records have no raw bytes in vLLM either.
func (a *NDArray) size() (n int, problem string) {
	size, ok := numpyItemSize(a.DType)
	if !ok {
		return 0, fmt.Sprintf("%.32q is no numpy type string of numbers, bools or text", a.DType)
	}
	n, ok = shapes.Bytes(a.Shape, size)
	if !ok {
		return 0, fmt.Sprintf("shape %v has a negative dimension, more than %d or too many elements", a.Shape, shapes.MaxDims)
	}
	return n, ""
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

func (a *NDArray) write(e *codec.Encoder) {
	n, problem := a.size()
	if problem == "" && len(a.Data) != n {
		problem = fmt.Sprintf("%s %v takes %d bytes, Data has %d", a.DType, a.Shape, n, len(a.Data))
	}
	if problem != "" {
		e.Invalid("ndarray", "%s", problem)
		return
	}
	e.Head(a.DType, a.Shape)
	// A 0-d array lies inline whatever its size.
	e.Payload(a.Data, n, len(a.Shape) == 0)
}

func readNDArray(d *codec.Decoder) (*NDArray, error) {
	if err := d.ArrayOf(3, "ndarray"); err != nil {
		return nil, err
	}
	name, err := d.Text("ndarray type")
	if err != nil {
		return nil, err
	}
	a := &NDArray{DType: name}
	if a.Shape, err = d.Shape(); err != nil {
		return nil, err
	}
	want, problem := a.size()
	if problem != "" {
		return nil, &codec.UnsupportedError{Text: fmt.Sprintf("serde: ndarray of type %.32q and shape %v is refused; "+
			"send numbers, bools or text that fit in memory", name, a.Shape)}
	}
	if a.Data, err = d.Payload("ndarray", want); err != nil {
		return nil, err
	}
	return a, nil
}
